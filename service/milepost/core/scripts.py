"""What words look like in the scripts of the world: pieces of patterns, by Unicode's blocks."""

import unicodedata

# Letters of Arabic and Indic scripts: a joiner behind one is part of the word.
JOINING = "\u0600-\u08ff\u0900-\u0dff\ufb50-\ufdff\ufe70-\ufefc"
JOINERS = "\u200c\u200d"

# Scripts that put no spaces between words: each of their signs is taken for one.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf"
    "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
)

# Where marks stand that belong to the letter before them, as most vowels do in Hindi or Thai.
_MARKED = (range(0x0300, 0x1E00), range(0xA600, 0xAC00), range(0x11000, 0x12000))
MARKS = "".join(
    chr(point)
    for points in _MARKED
    for point in points
    if unicodedata.category(chr(point)) in {"Mn", "Mc"}
)
