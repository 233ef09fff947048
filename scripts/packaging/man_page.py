# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages, made from what the programs themselves say with --help, so that the two cannot drift."""

import re
import time
from collections import Counter
from dataclasses import dataclass, field

from steps import Failed, output_of

# Program -> the section of the manual, its subcommands (as words), the pages to see also.
PAGES = {
    "ddprun": (1, [], ["ddpd(8) ,", "ddpctl(1)"]),
    "ddpd": (8, [], ["ddprun(1)"]),
    "ddpctl": (1, ["ckpt ls", "ckpt verify", "ckpt show", "ckpt convert", "page-token", "status", "nodes", "ranks",
                   "waits", "report", "explain", "stacks", "watch", "bundle", "timeline"], ["ddprun(1)"]),
}


@dataclass
class Help:
    """What --help says, in parts."""

    summary: str
    usage: str
    groups: list = field(default_factory=list)  # (heading, [[names, text]])
    paragraphs: list = field(default_factory=list)  # what follows the groups


def text_column(lines):
    """Where the text of most entries begins; entries have two blanks before them."""
    starts = Counter()
    for line in lines:
        found = re.match(r"  \S+(?: \S+)*(  +)\S", line)
        if found:
            starts[found.end() - 1] += 1
    return starts.most_common(1)[0][0] if starts else 0


def parse_help(text):
    """Reads what ddprun's own help and CLI11's have in common: a summary, a line "Usage: ...", headings
    with entries under them (names, then text in a column of its own), and paragraphs."""
    summary, is_there, rest = text.partition("\nUsage: ")
    if not is_there:
        raise Failed(f"--help has no line of usage: {text[:80]!r}")
    lines = rest.splitlines()
    parsed = Help(" ".join(summary.split()), lines[0])
    column = text_column(lines)
    entries = []
    is_new = True  # the line before was blank
    for line in lines[1:]:
        if not line:
            is_new = True
            continue
        if re.fullmatch(r"\S.*:", line):
            entries = []
            parsed.groups.append((line[:-1], entries))
        elif re.match(r"  \S", line):
            names, said = line[:column], line[column:]
            # Longer names have a line of their own; a single word behind one blank is their value.
            is_split = names.endswith("  ") or names.endswith(" ") and " " in said
            entries.append([names.strip(), said.strip()] if is_split else [line.strip(), ""])
        elif line.startswith("  "):
            entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
        elif is_new:
            parsed.paragraphs.append(line)
        else:
            parsed.paragraphs[-1] += f" {line}"
        is_new = False
    return parsed


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha")
    return "\\&" + text if text.startswith(".") else text


def names_in_roff(names):
    """Options bold, and what stands for a value in italics: \\fB--listen\\fR \\fIHOST:PORT\\fR."""
    words = []
    for word in names.replace(",-", ", -").removesuffix(" REQUIRED").split(" "):
        is_name = word.startswith("-") or word.islower()
        words.append(f"\\f{'B' if is_name else 'I'}{escaped(word.lstrip(':'))}\\fR")
    return " ".join(words)


def usage_in_roff(usage):
    program, _, rest = usage.partition(" ")
    return f"\\fB{escaped(program)}\\fR {escaped(rest)}"


def entries_in_roff(entries):
    return [line for names, text in entries for line in (".TP", names_in_roff(names), escaped(text))]


def page(program, help_of, version, seconds):
    """The page of `program` in roff.  help_of(words) gives what `program words --help` prints."""
    section, subcommands, see_also = PAGES[program]
    main = parse_help(help_of([]))
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    about, _, codes = " ".join(main.paragraphs).partition("Exit codes: ")
    name = main.summary.split(". ")[0].rstrip(".")
    lines = [
        f'.TH {program.upper()} {section} "{date}" "ddprun {version}" "ddprun"',
        *(".SH NAME", f"{program} \\- {escaped(name[0].lower() + name[1:])}"),
        *(".SH SYNOPSIS", usage_in_roff(main.usage)),
        *(".SH DESCRIPTION", escaped(main.summary)),
    ]
    if about:
        lines += [".PP", escaped(about.strip())]
    lines.append(".SH OPTIONS")
    for heading, entries in main.groups:
        if heading == "Subcommands":
            continue
        if heading != "Options":
            lines.append(f'.SS "{escaped(heading)}"')
        lines += entries_in_roff(entries)
    if subcommands:
        lines.append(".SH COMMANDS")
    for words in subcommands:
        command = parse_help(help_of(words.split()))
        lines += [f'.SS "{escaped(command.usage.replace("[OPTIONS] ", ""))}"', escaped(command.summary)]
        for _, entries in command.groups:
            lines += entries_in_roff([entry for entry in entries if entry[0] != "-h,--help"])
    if codes:
        lines += [".SH EXIT STATUS", escaped(codes)]
    lines.append(".SH SEE ALSO")
    lines += [f".BR {other.replace('(', ' (')}" for other in see_also]
    return "\n".join(lines) + "\n"


def write_pages(programs, folder, version, seconds):
    """Writes man1/ddprun.1 and so on under `folder`, from the programs in the folder `programs`."""
    for program, (section, _, _) in PAGES.items():
        place = folder / f"man{section}"
        place.mkdir(parents=True, exist_ok=True)
        text = page(program, lambda words, p=program: output_of([programs / p, *words, "--help"]), version, seconds)
        (place / f"{program}.{section}").write_text(text, encoding="utf-8")
