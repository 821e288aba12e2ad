"""tsadapt completion: what a shell offers after tsadapt and a tab."""

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    import argparse

__all__ = ["Completion"]

Shell = Literal["bash", "zsh", "fish"]

LONGEST = 70
"""Characters of a description that shells show."""


@dataclass(frozen=True)
class Completion:
    """Print a script that completes verbs, options and their values in a shell. Save it where the shell looks for it.

    bash: ~/.local/share/bash-completion/completions/tsadapt; zsh: _tsadapt in a folder of $fpath; fish:
    ~/.config/fish/completions/tsadapt.fish. Print it again after an upgrade.

    Example: tsadapt completion bash > ~/.local/share/bash-completion/completions/tsadapt
    """

    shell: tyro.conf.Positional[Shell]
    """The shell."""

    def __call__(self) -> int:
        """Print the script."""
        from tsadapt.cli import VERBS

        shown = {verb: what for verb, what in VERBS.items() if verb != "reproduce"}
        words = {verb: _words_of(verb) for verb in shown}
        print({"bash": _bash, "zsh": _zsh, "fish": _fish}[self.shell](shown, words), end="")
        return 0


@dataclass(frozen=True)
class _Word:
    """An option, or an argument (no flag), with the values that it has if they are a list; a switch takes none."""

    flag: str
    what: str
    values: tuple[str, ...]
    switch: bool


def _words_of(verb: str) -> list[_Word]:
    """The options and arguments of a verb."""
    from tsadapt.cli.verbs import parser_of

    known = _names()
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        actions = parser_of(verb)._actions
    for action in actions:
        flag = next((one for one in action.option_strings if one.startswith("--")), "")
        values = tuple(str(one) for one in action.choices or known.get(flag, ()) if str(one) != "None")
        what = re.sub(r"\s*\(default:.*", "", " ".join((action.help or "").split()))
        what = what.partition(". ")[0].rstrip(".")
        what = what if len(what) <= LONGEST else f"{what[: LONGEST - 1]}…"
        found.append(_Word(flag, what.replace("'", "’"), values, _is_switch(action)))
    return found


def _is_switch(action: "argparse.Action") -> bool:
    return action.nargs == 0


def _names() -> dict[str, tuple[str, ...]]:
    """The values of options whose help only says NAME."""
    from tsadapt.cli.options import terms_of_room
    from tsadapt.presets import PRESETS
    from tsadapt.selection.select import selectors

    rooms = {
        f"--{room.replace(' ', '-')}": tuple(terms_of_room(room)) for room in ("method", "source term", "target term")
    }
    return {**rooms, "--preset": tuple(PRESETS), "--by": tuple(selectors()), "--device": ("auto", "cpu", "cuda")}


def _bash(verbs: dict[str, str], words: dict[str, list[_Word]]) -> str:
    lines = [
        "# bash completion of tsadapt, made by: tsadapt completion bash",
        "_tsadapt() {",
        '    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} offered=""',
        "    COMPREPLY=()",
        "    if ((COMP_CWORD == 1)); then",
        f'        COMPREPLY=($(compgen -W "{" ".join([*verbs, "--help", "--version"])}" -- "$cur"))',
        "        return",
        "    fi",
        '    case "$verb $prev" in',
    ]
    for verb, these in words.items():
        for word in these:
            if word.flag and not word.switch:
                offered = f'COMPREPLY=($(compgen -W "{" ".join(word.values)}" -- "$cur"))' if word.values else ":"
                lines.append(f'        "{verb} {word.flag}") {offered}; return ;;')
    lines += ["    esac", '    case "$verb" in']
    for verb, these in words.items():
        flags = [word.flag for word in these if word.flag]
        values = [value for word in these if not word.flag for value in word.values]
        lines += [
            f'        {verb}) if [[ $cur == -* ]]; then offered="{" ".join(flags)}"',
            f'            else offered="{" ".join(values)}"; fi ;;',
        ]
    lines += [
        "    esac", '    COMPREPLY=($(compgen -W "$offered" -- "$cur"))', "}",
        "complete -o bashdefault -o default -F _tsadapt tsadapt",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _zsh(verbs: dict[str, str], words: dict[str, list[_Word]]) -> str:
    def text(said: str) -> str:
        return said.replace("[", "(").replace("]", ")").replace(":", r"\:").replace('"', "”").replace("`", "’")

    lines = ["#compdef tsadapt", "# zsh completion of tsadapt, made by: tsadapt completion zsh", "_tsadapt() {"]
    lines += ["    if ((CURRENT == 2)); then", "        local -a verbs=("]
    lines += [f"            '{verb}:{text(what)}'" for verb, what in verbs.items()]
    lines += ["        )", "        _describe verb verbs", "        return", "    fi", "    case $words[2] in"]
    for verb, these in words.items():
        lines.append(f"        {verb}) shift words; ((CURRENT--)); _arguments -s \\")
        for word in these:
            values = f":value:({' '.join(word.values)})" if word.values else ":value:_files"
            if word.flag:
                lines.append(f"            '*{word.flag}[{text(word.what)}]{'' if word.switch else values}' \\")
        arguments = [value for word in these if not word.flag for value in word.values]
        offered = f"({' '.join(arguments)})" if arguments else "_files"
        lines.append(f"            '*:data:{offered}' ;;")
    lines += [
        "    esac",
        "}",
        'if [ "$funcstack[1]" = _tsadapt ]; then _tsadapt "$@"; else compdef _tsadapt tsadapt; fi',
    ]
    return "\n".join(lines) + "\n"


def _fish(verbs: dict[str, str], words: dict[str, list[_Word]]) -> str:
    lines = ["# fish completion of tsadapt, made by: tsadapt completion fish"]
    for verb, what in verbs.items():
        lines.append(f"complete -c tsadapt -n __fish_use_subcommand -f -a {verb} -d '{what}'")
    for verb, these in words.items():
        when = f"complete -c tsadapt -n '__fish_seen_subcommand_from {verb}'"
        for word in these:
            values = f" -x -a '{' '.join(word.values)}'" if word.values else " -r"
            if word.flag:
                flag = word.flag.removeprefix("--")
                lines.append(f"{when} -l {flag} -d '{word.what}'{'' if word.switch else values}")
            elif word.values:
                lines.append(f"{when} -f -a '{' '.join(word.values)}'")
    return "\n".join(lines) + "\n"
