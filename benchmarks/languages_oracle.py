"""What can be expected on the names of data `labelled_text`: the ceiling, and two baselines that need no network.

- The ceiling is 1 by construction: names that several languages share are left out.
- Naive Bayes over the characters' 1- to 4-grams, with the word's ends; add-one smoothing at 0.1.
- The most frequent language of the train part.

    python benchmarks/languages_oracle.py
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from zoo.contracts.data import Draw, Split
from zoo.training.job import cache_folder
from zoo_builtin.data.labelled_text import LabelledText
from zoo_builtin.tokenizer.byte import Byte


def texts_of(data: LabelledText, split: Split) -> tuple[list[str], np.ndarray]:
    """Texts of one part, cut as its models see them, and their labels."""
    size = data.size(split)
    batch = data.batch(Draw(np.arange(size), np.zeros(size, np.int64), 0), split)
    rows = zip(batch["ids"], batch["valid"], strict=True)
    return [data.tokenizer().decode(row[valid].tolist()) for row, valid in rows], batch["labels"].numpy()


def main() -> None:
    """Prints the number of names of each part, and accuracies on validation and test."""
    data = LabelledText(LabelledText.Config(), cache=cache_folder(), tokenizer=Byte(Byte.Config()))
    data.prepare()
    train, labels = texts_of(data, "train")
    counter = CountVectorizer(analyzer="char_wb", ngram_range=(1, 4), lowercase=False)
    bayes = MultinomialNB(alpha=0.1).fit(counter.fit_transform(train), labels)
    ((frequent, _),) = Counter(labels.tolist()).most_common(1)
    print(f"train       {len(train):6,} names in {len(data.labels())} languages")
    for split in ("validation", "test"):
        held_out, right = texts_of(data, split)
        found = bayes.predict(counter.transform(held_out))
        print(
            f"{split:11} {len(held_out):6,} names, ceiling {data.ceiling(split):.4f}, "
            f"naive Bayes {(found == right).mean():.4f}, most frequent language {(right == frequent).mean():.4f}"
        )


if __name__ == "__main__":
    main()
