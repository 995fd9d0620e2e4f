"""Writes vllm_watch/support/vllm_flags.txt: which flag, variable, architecture, quantization and value of a flag which release of vLLM has.

    docs/read_vllm_flags.py TREE...

TREE is the unpacked source archive of a release (`pip download --no-binary vllm --no-deps vllm==0.11.0`), named
vllm-0.11.0. Nothing of it is run: the calls of add_argument are read, and the fields of the classes that they are
made of, and the registries of names. Give all trees at once, as many releases as there are: what a release removed is known only from the next.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parents[1] / "vllm_watch" / "support" / "vllm_flags.txt"
_SOURCES = (
    "engine/arg_utils.py", "entrypoints/*/cli_args.py", "entrypoints/openai/api_server.py",
    "entrypoints/cli/serve.py", "scripts.py",
)  # fmt: skip
_CONFIGS = ("config.py", "config/*.py", *_SOURCES)
_SWITCH, _VALUE, _SEVERAL = "switch", "value", "several"
_FRONTEND = ("FrontendArgs", "BaseFrontendArgs")
Version = tuple[int, ...]


def version_of(tree: Path) -> Version:
    """vllm-0.9.2 is (0, 9, 2); a post release is as the release that it mends."""
    return tuple(map(int, re.findall(r"\d+", tree.name.removeprefix("vllm-").split(".post")[0])))


def parsed(tree: Path, patterns: tuple[str, ...]) -> dict[str, ast.Module]:
    """The modules that are there, by their path."""
    paths = sorted({each for pattern in patterns for each in (tree / "vllm").glob(pattern)})
    return {str(each.relative_to(tree / "vllm")): ast.parse(each.read_text()) for each in paths}


def fields_of(modules: dict[str, ast.Module]) -> dict[str, dict[str, str]]:
    """Class → field → the text of its type."""
    return {
        node.name: {
            each.target.id: ast.unparse(each.annotation)
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        for module in modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    }


def kind_of_type(text: str) -> str:
    """As vLLM's get_kwargs makes arguments of types."""
    members = {re.split(r"\[", each)[0].lower() for each in members_of(ast.parse(text, mode="eval").body)}  # fmt: skip
    if "bool" in members:
        return _VALUE if "str" in members else _SWITCH
    return _SEVERAL if members & {"list", "tuple", "set", "sequence"} else _VALUE


def members_of(node: ast.expr) -> Iterator[str]:
    """The types that a union is made of."""
    if isinstance(node, ast.BinOp):
        yield from (*members_of(node.left), *members_of(node.right))
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Optional", "Union"):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for each in inner:
            yield from members_of(each)
    else:
        yield ast.unparse(node)


def kind_of_call(call: ast.Call, types: dict[str, str]) -> str:
    """What add_argument is told in words, else by the field that its keywords are made of."""
    for keyword in call.keywords:
        text = ast.unparse(keyword.value)
        if keyword.arg == "action":
            return _SWITCH if re.search(r"store_true|store_false|BooleanOptional|help|version", text) else _VALUE  # fmt: skip
        if keyword.arg == "nargs":
            return _SEVERAL if text in ("'+'", "'*'") else _VALUE
        named = re.findall(r"\w*kwargs\w*\['(\w+)'\]", text) if keyword.arg is None else []
        if named and named[0] in types:
            return kind_of_type(types[named[0]])
    return _VALUE


def flags_of(tree: Path) -> Iterator[tuple[str, str, str]]:
    """(long name with dashes, kind, short forms) of each."""
    classes = fields_of(parsed(tree, _CONFIGS))
    types = {field: text for each in classes.values() for field, text in each.items()}
    sources = parsed(tree, _SOURCES)
    single = set(re.findall(r"del frontend_kwargs\['(\w+)'\]\['nargs'\]", "\n".join(map(ast.unparse, sources.values()))))  # fmt: skip
    for path, module in sources.items():
        for call in ast.walk(module):
            if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "add_argument":
                continue
            if path == "scripts.py" and "serve_parser" not in ast.unparse(call.func):
                continue  # of vllm chat and vllm complete
            words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]  # fmt: skip
            short = " ".join(each for each in words if re.fullmatch(r"-\w+", each))
            for word in words:
                if word.startswith("--"):
                    yield word[2:].replace("_", "-"), kind_of_call(call, types), short
    for name in _FRONTEND:
        for field, text in classes.get(name, {}).items():
            kind = _VALUE if field in single or field == "middleware" else kind_of_type(text)
            yield field.replace("_", "-"), kind, ""


_MODELS = re.compile(r"MODELS?$")
_NOT_MODELS = re.compile("PREVIOUSLY|PARTIALLY|OOT|UNSUPPORTED|ROCM")
_METHODS = re.compile(r"QuantizationMethods = Literal\[(.*?)\]|QUANTIZATION_METHODS[^=]{0,80}= [\[{](.*?)\n[\]}]", re.DOTALL)  # fmt: skip


def names_of(tree: Path) -> Iterator[str]:
    """KIND:NAME of each variable in envs.py, architecture in the registry of models, and value of --quantization."""
    variables = tree / "vllm" / "envs.py"
    if variables.exists():
        yield from (f"variable:{each}" for each in re.findall(r'"(VLLM_[A-Z0-9_]+)"', variables.read_text()))  # fmt: skip
    methods = tree / "vllm" / "model_executor" / "layers" / "quantization" / "__init__.py"
    for found in _METHODS.finditer(methods.read_text() if methods.exists() else ""):
        yield from (f"value:quantization={each}" for each in re.findall(r'"([\w-]+)"', found[1] or found[2]))  # fmt: skip
    registries = ("model_executor/models/registry.py", "model_executor/models/__init__.py", "model_executor/model_loader.py")  # fmt: skip
    for module in parsed(tree, registries).values():
        for node in ast.walk(module):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(
                node.value, ast.Dict
            ):
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = target.id if isinstance(target, ast.Name) else ""
            if _MODELS.search(name) and not _NOT_MODELS.search(name):
                keys = (each.value for each in node.value.keys if isinstance(each, ast.Constant))
                yield from (f"architecture:{each}" for each in keys if isinstance(each, str))


_VALUES = {
    "tool-call-parser": (("entrypoints/openai/tool_parsers/*.py", "tool_parsers/*.py"), r"\bregister_module\(\s*(?:name=)?(\[[^\]]*\]|\"[^\"]+\")|_PARSERS_TO_REGISTER = (\{.*?\n\})"),
    "reasoning-parser": (("entrypoints/openai/reasoning_parsers/*.py", "reasoning/*.py"), r"\bregister_module\(\s*(?:name=)?(\[[^\]]*\]|\"[^\"]+\")|_PARSERS_TO_REGISTER = (\{.*?\n\})"),
    "load-format": (("config.py", "config/load.py", "model_executor/model_loader/__init__.py"), r"class LoadFormat\(str, enum\.Enum\):(.*?)\n\n|\nLoadFormats = Literal(\[.*?\])|_LOAD_FORMAT_TO_MODEL_LOADER[^=]*= (\{.*?\n\})"),
    "kv-cache-dtype": (("config.py", "config/cache.py", "engine/arg_utils.py"), r"CacheDType = Literal(\[.*?\])|'--kv-cache-dtype',[^)]{0,80}choices=(\[.*?\])"),
    "attention-backend": (("attention/selector.py", "platforms/interface.py", "attention/backends/registry.py", "v1/attention/backends/registry.py"), r"class (?:_Backend|AttentionBackendEnum)\((?:enum\.)?Enum.*?\):(.*?)\n(?=\S)"),
}  # fmt: skip
"""Flag → files, and the text with its values."""
_KEYS = re.compile(r"""^ {4}['"]([\w-]+)['"]:""", re.MULTILINE)
_STRINGS, _MEMBERS = (
    re.compile(r"""['"]([\w-]+)['"]"""),
    re.compile(r"^ {4}([A-Z]\w+) = ", re.MULTILINE),
)


def values_of(tree: Path) -> Iterator[str]:
    """value:FLAG=VALUE of each value that a flag takes by name."""
    for flag, (patterns, text) in _VALUES.items():
        for path in sorted(
            {each for pattern in patterns for each in (tree / "vllm").glob(pattern)}
        ):
            for found in re.finditer(text, path.read_text(), re.DOTALL):
                said = next(each for each in found.groups() if each)
                names = _MEMBERS if flag == "attention-backend" else _KEYS if said[0] == "{" else _STRINGS  # fmt: skip
                yield from (f"value:{flag}={each}" for each in names.findall(said))


def pairs(tree: Path) -> bool:
    """Whether this release takes --disable-x for --enable-x, and the other way."""
    return any("class EnableDisableAction" in each.read_text() for each in (tree / "vllm" / "utils").glob("*.py"))  # fmt: skip


def spans(have: set[Version], releases: list[Version]) -> str:
    """0.3.0-0.11.2 0.33.0-: from the first to the last release of each stretch; open where it goes on."""
    found: list[list[Version]] = []
    for before, release in zip([None, *releases], releases, strict=False):
        if release not in have:
            continue
        if found and found[-1][1] == before:
            found[-1][1] = release
        else:
            found.append([release, release])
    said = [(".".join(map(str, first)), "" if last == releases[-1] else ".".join(map(str, last))) for first, last in found]  # fmt: skip
    return " ".join(f"{first}-{last}" for first, last in said)


def main(trees: list[Path]) -> None:
    """Read all of them; write the table."""
    have: dict[str, set[Version]] = defaultdict(set)
    kinds: dict[str, str] = {}
    shorts: dict[str, str] = {}
    releases = []
    for tree in sorted(trees, key=version_of):
        release = version_of(tree)
        releases.append(release)
        for name, kind, short in flags_of(tree):
            names = [name]
            inverse = re.sub(r"^(enable|disable)-", lambda found: "disable-" if found[1] == "enable" else "enable-", name)  # fmt: skip
            if pairs(tree) and kind == _SWITCH and inverse != name:
                names.append(inverse)
            for each in names:
                have[each].add(release)
                kinds[each] = kind
            if short:
                shorts[name] = short
        for name in (*names_of(tree), *values_of(tree)):
            have[name].add(release)
            kinds[name] = "name"
    have["help"], kinds["help"], shorts["help"] = set(releases), _SWITCH, "-h"
    lines = [
        f"{name} {kinds[name]} {spans(have[name], releases)} {shorts.get(name, '')}".rstrip()
        for name in sorted(have)
    ]
    head = [
        "# Made by docs/read_vllm_flags.py of vLLM's source archives: flag (or KIND:NAME), kind, releases that have it, short forms.",
        f"releases {' '.join('.'.join(map(str, each)) for each in releases)}",
    ]
    OUT.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
