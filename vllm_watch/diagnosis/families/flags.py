"""Failures caused by flags and the values of settings.

Sources: vllm/engine/arg_utils.py and vllm/config of vLLM 0.6 to 0.32; vllm #22072 (an argument that is not a flag).
"""

import re

from vllm_watch.diagnosis.report import Check, Fix
from vllm_watch.diagnosis.rule import Facts, Failure, Told, Variant, check, cure, rule, when
from vllm_watch.support import vllm_flags
from vllm_watch.support.vllm_flags import Standing

FLAG = "unknown_flag"
FLAG_VALUE = "wrong_flag_value"
HELP = "vllm serve --help=all   (before 0.10: --help)"

NO_NUMBER = r"invalid literal for int\(\) with base|could not convert string to float"
NOT_A_NUMBER = Variant(
    when=when(NO_NUMBER),
    sentence="the program expected a number and read text",
    why="The message quotes the text. An integer cannot have a decimal point or a unit.",
    cures=(check("search the command line and the environment for this text", "env | grep -E '^(VLLM|CUDA|NCCL)_'", when(NO_NUMBER)),),
)  # fmt: skip

RULES = (
    rule(FLAG, "unrecognized arguments:", pattern=r"error: unrecognized arguments: *\S"),
    rule(FLAG, "unexpected keyword argument", pattern=r"(?:Engine|AsyncEngine)Args\.__init__\(\) got an unexpected keyword argument '\w+'|LLM\.__init__\(\) got an unexpected"),
    rule(FLAG, "ambiguous option: ", pattern=r"error: ambiguous option: -"),
    rule(FLAG_VALUE, "invalid tool call parser", "invalid reasoning parser", "--enable-auto-tool-choice requires --tool-call-parser"),
    rule(FLAG_VALUE, "error: argument", "invalid choice:", "mutually exclusive", "arguments are required", pattern=r"error: argument -[^:]{0,80}: \S|invalid choice: '.{0,80}\(choose from|--\w\S*.{0,80}are mutually exclusive|error: the following arguments are required"),
)  # fmt: skip

_FLAGS = re.compile(r"unrecognized arguments: *(.{1,400})")
_VALUE = re.compile(r"['\"]?[{\[].*[}\]]['\"]?")
"""A JSON value, which may contain words with dashes."""

_AMBIGUOUS = re.compile(r"ambiguous option: (\S{1,80}) could match (.{1,300})")
_FLAG = re.compile(r"--[A-Za-z]")
_ONE_DASH = re.compile(r"-[a-z]{2}")
_SERVER = re.compile(r"(?:\bserve|api_server\.py): error:")
_FIELD = re.compile(
    r"validation errors? for \w+\s*\n(?:.{0,120}[\])] |)(?:([\w.]{1,80})\s*\n)?.{0,120}?  +((?!\|)\S[^\[\n]{4,300})"
)
_REQUIRED = re.compile(r"arguments are required: (.{1,200})")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w{1,80})'")
_OTHERS = {
    "--tp": "use --tensor-parallel-size (short: -tp)", "--pp": "use --pipeline-parallel-size (short: -pp)", "--dp": "use --data-parallel-size (short: -dp)",
    "--omni": "install the vllm-omni release that matches this vLLM: --omni is its flag",
    "--mem-fraction-static": "use --gpu-memory-utilization: --mem-fraction-static is SGLang's", "--context-length": "use --max-model-len: --context-length is SGLang's",
}  # fmt: skip
"""Flags of related programs, and the advice for each."""
_SAMPLING = frozenset(("--temperature", "--top-p", "--top-k", "--min-p", "--max-tokens", "--repetition-penalty"))  # fmt: skip


def is_of_no_release(text: str) -> bool:
    """Return True if no unknown flag was ever vLLM's or resembles one, and the line does not name vLLM's server as the program."""
    found, known = _FLAGS.search(text), vllm_flags.table()[0]
    words = (
        [each.partition("=")[0].lstrip("-") for each in found[1].split() if _FLAG.match(each)]
        if found
        else []
    )
    standings = [vllm_flags.look_up(each, None) for each in words]
    never = all(each.standing is Standing.NEVER and each.nearest is None for each in standings)
    alike = any(name.startswith(word.removeprefix("no-")) for name in known for word in words)
    alike = alike or any(f"--{word}" in _SAMPLING for word in words)
    return bool(words) and never and not alike and _SERVER.search(text) is None


def _unknown_flag(text: str, facts: Facts) -> Told:
    if found := _KEYWORD.search(text):
        version = facts.get("vllm_version")
        known = vllm_flags.look_up(found[1].replace("_", "-"), None if version is None else str(version))  # fmt: skip
        gone = known.standing is Standing.REMOVED
        said = f"removed in vLLM {known.removed_in}" if gone else f"vLLM {known.releases} has it" if known.releases else "check its spelling, and the release that the calling program is made for"  # fmt: skip
        fix = Fix(f"drop {found[1]}, or use matching releases of vLLM and its caller ({said})", "python -m pip show vllm")  # fmt: skip
        return Told(f"The argument is {found[1]}.", (fix,))
    if (found := _AMBIGUOUS.search(text)) and found[1].lstrip("-") in vllm_flags.table()[0]:
        fix = Fix("pass the model without a flag, even if a --config file has the key", "vllm serve MODEL …") if found[1] == "--model" else Check("find the chart, script or --config file that passes it")  # fmt: skip
        return Told(f"{found[1]} is a complete flag name, not an abbreviation: this command does not have the option.", (fix,))  # fmt: skip
    if found:
        return Told(f"{found[1]} is an abbreviation of several flags.", (Fix(f"write one of them in full: {found[2]}"),))  # fmt: skip
    found = _FLAGS.search(text)
    words = _VALUE.sub(" ", found[1]).split() if found else []
    flags = [each.partition("=")[0] for each in words if _FLAG.match(each)]
    dashed = [each.partition("=")[0] for each in words if _ONE_DASH.match(each)]
    dashed = [each for each in dashed if each.lstrip("-") in vllm_flags.table()[0]]
    if dashed:
        fixes = (Fix(f"write -{each}: it has two dashes") for each in dashed)
        return Told(f"The program does not know {', '.join(dashed)}.", tuple(fixes))
    if flags and "flag_of_no_release" in facts:
        fix = Check("check which program printed the line, and whether it matches the image, chart or script that passes the flag; if it should be vLLM, drop the flag")  # fmt: skip
        others = tuple(_flag_fix(each, facts) for each in flags if each in _OTHERS)
        return Told(
            f"The program does not know {', '.join(flags)}, and no vLLM release lists it among its flags.",
            (*others, fix),
        )
    # If the first unknown word is not a flag, the words after it are part of the mistake, even flags.
    if not flags or words[0][0] != "-":
        positional = " ".join(words[:3])
        if words and re.fullmatch(r"(?i)true|false|yes|no|on|off|[\d.]+", words[0]):
            return Told(f"{words[0]} is a value that belongs to no flag.", (Fix("if the word before it is a switch, write it alone, or --no-NAME to turn it off; a chart or script may turn NAME: true into a flag and a value"),))  # fmt: skip
        if "api_server.py: error:" in text:  # takes only flags, unlike `vllm serve`
            return Told(f"{positional} is not a flag, and this program takes only flags.", (Fix("if it is the model, pass it with a flag", "--model MODEL"),))  # fmt: skip
        return Told(
            f"{positional} is not a flag, and this command accepts no such argument there.",
            (Fix("pass the model once; the official image already runs vllm serve, so leave these words out of its arguments"),),
        )  # fmt: skip
    return Told(f"The program does not know {', '.join(flags)}.", tuple(_flag_fix(each, facts) for each in flags))  # fmt: skip


_NAMES = {
    "quantization": r"[Qq]uantization method:? ['\"]?([\w-]{2,40})|--quantization.{0,20}: invalid choice: '([\w-]{2,40})",
    "tool-call-parser": r"invalid tool call parser: ([\w-]{2,40})",
    "reasoning-parser": r"invalid reasoning parser: ([\w-]{2,40})",
    "kv-cache-dtype": r"--kv-cache-dtype.{0,20}: invalid choice: '([\w-]{2,40})",
    "load-format": r"--load-format.{0,20}: invalid choice: '([\w-]{2,40})",
    "attention-backend": r"nknown attention backend: '(\w{2,60})|ttention backend '(\w{2,60})' has been removed|alue '(\w{2,60})' for VLLM_ATTENTION_BACKEND",
}
_VALUES = tuple((flag, re.compile(pattern)) for flag, pattern in _NAMES.items())


def value(text: str, facts: Facts) -> Told:
    """Name the releases that have a value of a flag."""
    each = next(((flag, found) for flag, names in _VALUES if (found := names.search(text))), None)
    if each is None or "capability" in text:
        return Told()
    return of_release(vllm_flags.VALUE, each[1], facts, f"{each[0]}=")


def of_release(kind: str, match: re.Match[str] | None, facts: Facts, flag: str = "") -> Told:
    """Name the releases that have the name in a match. The name of a value begins with `flag`, such as "load-format="."""
    name, version = match[match.lastindex or 0] if match else "", facts.get("vllm_version")
    found = vllm_flags.look_up(flag + name, None if version is None else str(version), kind)
    if found.standing is Standing.NOT_YET:
        return Told(f"vLLM has {name} from {found.releases} on.", (Fix(f"install vLLM {found.releases} or later"),))  # fmt: skip
    if found.standing is Standing.REMOVED:
        return Told(f"vLLM {found.removed_in} removed {name}.", (Fix(f"use vLLM {found.releases} or earlier, or the model's successor"),))  # fmt: skip
    if found.nearest and kind != vllm_flags.ARCHITECTURE:  # an architecture is copied, not typed
        return Told(f"No release of vLLM has {name}.", (Fix(f"use {found.nearest}, if you meant that"),))  # fmt: skip
    return Told(f"Releases of vLLM with {name}: {found.releases}.") if found.releases else Told()


def field(text: str, facts: Facts) -> Told:
    """Quote the message below a header that counts errors."""
    if found := _REQUIRED.search(text):
        model = "model" in found[1]
        fix = Fix("specify the model", "vllm serve ORG/MODEL …") if model else Fix("add the argument that the message names")  # fmt: skip
        return Told(f"The command lacks {found[1].strip()}.", (fix,))
    found = _FIELD.search(text)
    if found is None:
        return value(text, facts)
    name = f"{found[1]}: " if found[1] else ""
    return Told(f'The message is "{name}{found[2].strip()}".')


def _flag_fix(flag: str, facts: Facts) -> Fix:
    if flag in _SAMPLING:
        return Fix(f"drop {flag}: it is a request parameter (or belongs in --override-generation-config), not a server flag")  # fmt: skip
    if flag in _OTHERS:
        return Fix(_OTHERS[flag])
    name, version = flag.lstrip("-"), facts.get("vllm_version")
    flags, releases = vllm_flags.table()
    known = flags.get(name.removeprefix("no-"))
    found = vllm_flags.look_up(name, None if version is None else str(version))
    if known is None:
        meant = found.nearest or next((each for each in flags if each.startswith(name)), None)
        what = f"use --{meant}" if meant else f"drop {flag}, or check its spelling"
        return Fix(f"{what}: no release of vLLM has {flag}", HELP)
    instead = f" ({found.instead})" if found.instead else ""
    if found.standing is Standing.REMOVED:
        return Fix(f"drop {flag}: removed in vLLM {found.removed_in}{instead}")
    if found.standing is Standing.NOT_YET:
        return Fix(f"drop {flag}: it comes with vLLM {found.releases}")
    if version is not None or all(map(known.within, releases)):
        return Check(f"check how {flag} is written: vLLM has it, but not here (quoted as one word with its value, or a flag of another command)")  # fmt: skip
    first = ".".join(map(str, known.spans[0][0]))
    # This release is older, or the word was not read as a flag.
    if len(known.spans) == 1 and known.within(releases[-1]):
        return Fix(f"vLLM has {flag} from {first} on: drop it if this release is older, otherwise check how it is written (quoted as one word with its value, or a flag of another command)")  # fmt: skip
    return Fix(f"drop {flag}: vLLM {found.releases or f'from {first} on'} has it, and this release does not{instead}")  # fmt: skip


NO_FIELD = Variant(
    when=when(r"\[type=(?:unexpected_keyword_argument|extra_forbidden)\b"),
    sentence="a setting has a field that this vLLM version does not know",
    why="Every start fails the same way.",
    cures=(cure("drop the field, or check its name in this release's documentation", None, when(r"type=")),),
)  # fmt: skip

FAILURES = (
    Failure(
        slug=FLAG,
        sentence="the command has an argument that the program does not know",
        why="Every start fails the same way.",
        cures=(),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"__init__\(\) got an unexpected keyword"), sentence="the program that starts vLLM passes an argument that this vLLM version does not know",
                why="Every start fails the same way.",
            ),
            Variant(
                when=when(facts=("flag_of_no_release",)), sentence="a program received an argument that it does not know, and that is not among the flags of any vLLM release", confidence=0.6,
            ),
        ),
        numbers=_unknown_flag,
    ),
    Failure(
        slug=FLAG_VALUE,
        sentence="the program does not accept a flag's value, or two flags together",
        why="Every start fails the same way.",
        cures=(
            check("check in vLLM's documentation whether a later release has this value: the list is the installed release's", "vllm --version", when(r"invalid choice|invalid (?:tool call|reasoning) parser")),
            cure("use another parser only if it was made for this model; otherwise start without the flag", None, when(r"invalid (?:tool call|reasoning) parser")),
            cure("or use a value from the list, if its meaning fits", None, when(r"invalid choice", lacks=r"-parser")),
            cure("if the value is JSON, quote it so that the shell keeps its quotes: single quotes outside, double quotes inside", "--FLAG '{\"key\": \"value\"}'", when(r"cannot be converted|\bJSON\b|json\.")),
            check("check the flag's values", HELP, when(lacks=r"arguments are required")),
        ),
        deterministic=True,
        numbers=field,
        variants=(
            NO_FIELD,
            Variant(
                when=when(r"argument (?:subparser|subcommand|\{\w[^}]{0,200}\}): invalid choice"), sentence="a command is expected, and the word there is not one of the program's commands",
                why="Every start fails the same way.",
                cures=(cure("put the command first, then the model", "vllm serve ORG/MODEL …", when(r"choose from.{0,40}\bchat\b")), check("in a container, check the image's entrypoint: it may already be vllm, or vllm serve", "docker inspect --format '{{.Config.Entrypoint}} {{.Config.Cmd}}' IMAGE")),
            ),
            Variant(
                when=when(r"--enable-auto-tool-choice requires --tool-call-parser"), sentence="--enable-auto-tool-choice needs a tool call parser, and none is set", why="Every start fails the same way.",
                cures=(cure("set the parser that was made for this model (the model's page, or vLLM's page on tool calling, names it)", "--tool-call-parser NAME", when(r"requires")), cure("or, without tool calls, remove --enable-auto-tool-choice", None, when(r"requires"))),
            ),
            Variant(
                when=when(r"expected (?:one|at least one|\d+) arguments?"), sentence="a flag has no value, or too few", why="Every start fails the same way.",
                cures=(cure("write the value after the flag; check that a variable used as the value is not empty, and write a value that begins with a dash with =", "--FLAG=VALUE", when(r"expected")),),
            ),
            Variant(when=when(r"arguments are required"), sentence="a required argument is missing from the command", why="Every start fails the same way."),
        ),
    ),
)  # fmt: skip
