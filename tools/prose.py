"""Words, reading ease and longest sentences of the documentation: ``python tools/prose.py``.

Reading ease is Flesch's: 206.8 - 1.015 words per sentence - 84.6 syllables per word. 60 to 70 is
plain English; technical words cost a few points. Code, tables, formulas and links do not count.
A sentence of more than 45 words is named, and makes the exit code 1.
"""

import re
import sys
from pathlib import Path

import pyphen

ROOT = Path(__file__).parents[1]
LONGEST = 45
HYPHENS = pyphen.Pyphen(lang="en_GB")


def sentences(page: Path) -> list[list[str]]:
    """Return the words of each sentence of a page's running text."""
    text = page.read_text("utf-8")
    if page.suffix == ".py":  # a worked example: its cells of text
        cells = re.findall(r"^# %% \[markdown\]\n((?:#.*\n)+)", text, flags=re.M)
        text = re.sub(r"^# ?", "", "\n".join(cells), flags=re.M)
    text = re.sub(r"^(```|:::).*?^\1\s*$", "", text, flags=re.M | re.S)
    text = re.sub(r"\$\$.*?\$\$", " x ", text, flags=re.S)
    text = re.sub(r"\$[^$]*?\$|`[^`]*`", "x", text)
    text = re.sub(r"(?<=\d)[.,](?=\d)", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = [
        re.sub(r"^[\s>*#0-9.-]+", "", block)
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.) )", text)
        if block.strip() and not block.lstrip().startswith(("|", "<", "#"))
    ]
    found = [re.split(r"(?<=[.!?:;])\s+", block) for block in blocks]
    return [words for block in found for part in block if (words := re.findall(r"[\w'-]+", part))]


def syllables(word: str) -> int:
    """Return how many syllables a word has, by where it could be hyphenated."""
    return len(HYPHENS.inserted(word.lower()).split("-"))


def main() -> int:
    """Print a line for each page and one for all; name what is too long."""
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", *docs.glob("*.md"), *sorted((docs / "guide").glob("*.md"))]
    pages += sorted((docs / "notebooks").glob("*.py"))
    total, long = [0, 0, 0], []
    print(f"{'page':40}{'words':>8}{'per sentence':>14}{'reading ease':>14}")
    for page in pages:
        found = sentences(page)
        counts = [
            sum(map(len, found)),
            len(found),
            sum(syllables(word) for words in found for word in words),
        ]
        long += [(page, words) for words in found if len(words) > LONGEST]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        print(_line(str(page.relative_to(ROOT)), *counts))
    print(_line("all", *total))
    for page, words in long:
        print(f"{page.relative_to(ROOT)}: {len(words)} words: {' '.join(words[:12])} ...")
    return 1 if long else 0


def _line(name: str, words: int, n_sentences: int, n_syllables: int) -> str:
    per_sentence = words / max(n_sentences, 1)
    ease = 206.835 - 1.015 * per_sentence - 84.6 * n_syllables / max(words, 1)
    return f"{name:40}{words:8,}{per_sentence:14.1f}{ease:14.0f}"


if __name__ == "__main__":
    sys.exit(main())
