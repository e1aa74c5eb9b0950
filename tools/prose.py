"""Words, reading ease and longest sentences of the documentation: ``python tools/prose.py``.

Reading ease is Flesch's: 206.8 - 1.015 words per sentence - 84.6 syllables per word, by groups of
vowels. 60 to 70 is plain English. Code, tables, formulas and references do not count. A sentence of
more than 45 words, or a phrase that reads like a translation, is named and makes the exit code 1.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 45
# What one would not say aloud, with what to say instead.
ODD = {
    r"\b(?:are|is) no (?:features?|feature columns?)\b": "are not features",
    r"\b(?:are|is) no (?:columns?|labels?|numbers?|dates?)\b": "are not ...",
    r"\bof outcomes nobody\b": "nobody ... the outcomes",
    r"\bthe which\b": "which",
    r"\bas well as possible\b": "as well as it can",
    r"\b(?:is|are) to be (?:set|done|had)\b": "you set, you do, you get",
    r"\bif told so\b": "if you ask for it",
    r"\btheir being\b": "that they are",
    r"\btells? (?:the )?(?:uplift|average)\b": "identifies",
    r"\bhad a say\b": "counted",
    r"\btold apart\b(?! at)": "called different",
    r"\b(?:law|laws) of (?:the )?(?:outcomes?|features|x)\b": "distribution",
    r"\bspeaks? for\b": "is about",
    r"\bmend(?:s|ed|ing)?\b": "correct",
    r"\blevelled\b": "balanced",
}


def sentences(page: Path) -> list[list[str]]:
    """Return the words of each sentence of a page's running text."""
    text = page.read_text("utf-8")
    if page.suffix == ".py":  # a worked example: its cells of text
        cells = re.findall(r"^# %% \[markdown\]\n((?:#.*\n)+)", text, flags=re.M)
        text = re.sub(r"^# ?", "", "\n".join(cells), flags=re.M)
    text = re.sub(r"^## References\n.*?(?=^## |\Z)", "", text, flags=re.M | re.S)
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
    return [
        words
        for block in found
        for part in block
        if (words := re.findall(r"[\w'-]+", part))
    ]


def opening(text: str) -> tuple[str, str]:
    """Return the title of a page and its first sentence, which is its answer."""
    title = re.search(r"^# (.+)$", text, flags=re.M)
    begin = re.sub(r"\(\S+\)=\n", "", text[title.end() if title else 0 :])
    blocks = (block.strip() for block in re.split(r"\n\s*\n", begin))
    first = next(block for block in blocks if re.match(r"[\w`*[]", block))
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    sentence = re.match(r".*?[.?!](?=\*{0,2}(?:\s|$))", plain)
    return title[1] if title else "", (sentence[0] if sentence else plain).strip("*")


def quoted(text: str) -> list[str]:
    """Return the names that stand in backquotes, in their order."""
    return re.findall(r"`([\w.]+)`", text)


def syllables(word: str) -> int:
    """Return how many syllables a word has: groups of vowels, but for an e that is not spoken."""
    spoken = re.sub(
        r"(?<=[^aeiouyl])e(?:s|d)?$|(?<=[aeiouy]l)e(?:s|d)?$", "", word.lower()
    )
    return max(1, len(re.findall(r"[aeiouy]+", spoken)))


def main() -> int:
    """Print a line for each page and one for all; name what is too long."""
    docs = ROOT / "docs"
    pages = [
        ROOT / "README.md",
        *docs.glob("*.md"),
        *sorted((docs / "guide").glob("*.md")),
    ]
    pages += sorted((docs / "notebooks").glob("*.py"))
    total, guide, found_odd, long = [0, 0, 0], [0, 0, 0], [], []
    print(f"{'page':40}{'words':>8}{'per sentence':>14}{'reading ease':>14}")
    for page in pages:
        found = sentences(page)
        counts = [
            sum(map(len, found)),
            len(found),
            sum(syllables(word) for words in found for word in words),
        ]
        long += [(page, words) for words in found if len(words) > LONGEST]
        found_odd += [(page, *odd) for odd in oddities(page)]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        if page.parent.name == "guide":
            guide = [a + b for a, b in zip(guide, counts, strict=True)]
        print(_line(str(page.relative_to(ROOT)), *counts))
    print(_line("docs/guide", *guide))
    print(_line("all", *total))
    for page, words in long:
        print(
            f"{page.relative_to(ROOT)}: {len(words)} words: {' '.join(words[:12])} ..."
        )
    for page, said, better in found_odd:
        print(f"{page.relative_to(ROOT)}: {said!r}; say {better!r}")
    return 1 if long or found_odd else 0


def oddities(page: Path) -> list[tuple[str, str]]:
    """Return turns of phrase that read like a translation, each with what to say instead."""
    text = re.sub(r"`[^`]*`", "x", " ".join(page.read_text("utf-8").split()))
    return [
        (m[0], better) for odd, better in ODD.items() for m in re.finditer(odd, text)
    ]


def _line(name: str, words: int, n_sentences: int, n_syllables: int) -> str:
    per_sentence = words / max(n_sentences, 1)
    ease = 206.835 - 1.015 * per_sentence - 84.6 * n_syllables / max(words, 1)
    return f"{name:40}{words:8,}{per_sentence:14.1f}{ease:14.0f}"


if __name__ == "__main__":
    sys.exit(main())
