"""Reads the pod, container, unit or session of a process from its control group.

Source: Kubernetes' cgroup drivers, runc, containerd, CRI-O, podman, Docker; systemd.special(7).
"""

import re

_DELETED = " (deleted)"  # kernel's suffix for a removed group
_ID = r"[0-9a-f]{4,64}"
_POD = re.compile(rf"pod({_ID}(?:[-_]{_ID})*)", re.IGNORECASE)
_CONTAINER = re.compile(
    rf"(?:docker|cri-containerd|crio|libpod|containerd|nerdctl)[-/:]({_ID})(?:\.scope)?(?:/|$)|/({_ID})(?:\.scope)?(?:/|$)"
)
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")
_USER = re.compile(r"/user-(\d+)\.slice")
_SHOWN = 12
_POD_SHOWN = 36


def is_deleted(cgroup: str | None) -> bool:
    """Return True if the group was removed while in use."""
    return cgroup is not None and cgroup.endswith(_DELETED)


def container_of(cgroup: str | None) -> tuple[str | None, str | None]:
    """Return the IDs of pod and container."""
    if not cgroup:
        return None, None
    path = cgroup.removesuffix(_DELETED)
    pod = _POD.search(path) if "kubepods" in path else None
    rest = path[pod.end() :] if pod else path
    container = _CONTAINER.search(rest) if pod or "user.slice" not in path else None
    if container is None and "libpod" in path:
        container = _CONTAINER.search(path)
    name = (container[1] or container[2]) if container else None
    return (pod[1].replace("_", "-") if pod else None), name


def in_user_session(cgroup: str | None) -> bool:
    """Return True if a person started the process."""
    if not cgroup or "user.slice" not in cgroup or container_of(cgroup)[1]:
        return False
    unit = _UNIT.findall(cgroup)
    return not [name for name in unit if not name.startswith("user@")]


def is_outside(cgroup: str | None) -> bool:
    """Return True if the process is outside containers. All processes of the host are then visible."""
    if not cgroup or container_of(cgroup) != (None, None):
        return False
    return any(
        part in cgroup for part in ("system.slice", "user.slice", "init.scope", "machine.slice")
    )


def describe(cgroup: str | None) -> str | None:
    """Return the pod, container, unit or session, or None."""
    if not cgroup:
        return None
    pod, container = container_of(cgroup)
    if pod:
        text = f"pod {pod[:_POD_SHOWN]}"
        return f"{text}, container {container[:_SHOWN]}" if container else text
    if container:
        return f"container {container[:_SHOWN]}"
    units = [name for name in _UNIT.findall(cgroup) if not name.startswith("user@")]
    if units:
        return str(units[-1])
    user = _USER.search(cgroup)
    if user:
        return f"session of user {user[1]}"
    return "a user's session" if "user.slice" in cgroup else None
