"""Files that somebody names, answers over HTTP and JSON are read in one way: bounded in bytes, time and depth.

`support/regular_file.py` reads files, `clients/http_answer.py` answers, `support/json_text.py` JSON. Whatever else opens or reads in the
package is listed here with the reason.
"""

import ast

from tests.test_conventions import ROOT, SOURCES, tree

OPENING = {"json.load", "json.loads", "open", "os.open", "gzip.open", "io.open", "tarfile.open", "urllib.request.urlopen"}  # fmt: skip
READING = {"read_text", "read_bytes"}
OF_ANSWERS = {"read", "readany", "readchunk", "readline", "iter_any", "iter_chunked", "iter_chunks"}

KERNEL = "a file of the kernel's (procfs), which always ends and cannot be replaced"
OWN = "we write it"
ALLOWED = {
    "support/regular_file.py": "the one way",
    "support/json_text.py": "the one way",
    "support/private_files.py": "the one way to write",
    "clients/http_answer.py": "the one way",
    "export/page_files.py": "files of the installed package",
    "sources/cpu_waits.py": KERNEL,
    "reclaim/reclaim.py": KERNEL,
    "sources/gpu_pids.py": KERNEL,
    "sources/processes.py": KERNEL,
    "sources/sockets.py": KERNEL,
    "restart/hooks/reaper.py": KERNEL,
    "support/vllm_flags.py": "a file of the installed package",
    "cli/check_config.py": "a file of the installed package",
    "cli/helpers/launch_software.py": "a file of the installed package",
    "cli/helpers/vllm_parser.py": "it runs in vLLM's Python, which cannot import ours: /dev/null, and our own request",
    "sources/own_trouble.py": "/dev/null, to see whether a descriptor is left",
    "__main__.py": "/dev/null",
    "lab/live.py": "the simulated engine; what it answers to a bad request is its own",
    "restart/evidence.py": OWN,
    "restart/locks/file.py": OWN,
    "sources/recording.py": OWN,
    "state/file.py": OWN,
}
"""Module → why it may open or read otherwise."""


def odd(module: ast.Module) -> list[str]:
    """Return what in a module opens a file, or reads an answer, in a way of its own."""
    found = []
    withs = [node for node in ast.walk(module) if isinstance(node, ast.With)]
    managed = {id(item.context_expr) for node in withs for item in node.items}
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        of_path = last == "open" and "." in called and (id(node) in managed or _takes_a_mode(node))
        of_answer = last in OF_ANSWERS and ".content." in f".{called}"
        json_of_answer = isinstance(node.func, ast.Attribute) and called in ("response.read", "response.text", "response.json")  # fmt: skip
        if called in OPENING or last in READING or of_path or of_answer or json_of_answer:
            found.append(f"{node.lineno}: {called}")
    return found


def _takes_a_mode(node: ast.Call) -> bool:
    """Tell `path.open("rb")` from `spool.open(session)`."""
    words = [*node.args, *(each.value for each in node.keywords)]
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in words)


def test_nothing_reads_in_a_way_of_its_own() -> None:
    """A new reader goes through the one way, or says here why it does not."""
    package = ROOT / "vllm_watch"
    modules = {str(path.relative_to(package)): odd(tree(path)) for path in SOURCES}
    assert [
        f"{module}:{line}"
        for module, found in modules.items()
        if module not in ALLOWED
        for line in found
    ] == []
    assert [module for module in ALLOWED if not modules.get(module)] == []  # a reason for nothing


def test_each_kind_of_reader_is_found() -> None:
    """A test that finds nothing would hold for anything."""
    lines = (
        'open("f")', 'with path.open() as f: pass', 'path.open("rb")', 'os.open(path, 0)', 'path.read_text()', 'path.read_bytes()',
        'response.content.read(9)', 'answer.content.iter_any()', 'request.content.iter_chunked(9)', 'response.json()',
        'gzip.open(path)', 'json.loads(text)', 'urllib.request.urlopen(url)',
    )  # fmt: skip
    for line in lines:
        assert odd(ast.parse(line)), line
