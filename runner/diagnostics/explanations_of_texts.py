"""What the codes from CW101 on mean, of the text of a file: why, an example, the way out, as in explanations.py."""

from . import codes

# fmt: off
OF_TEXTS = {
    codes.NO_FILE: (
        "The path does not lead to a file that can be read.",
        "chunkwise check pipelines/gated_dleta.yaml",
        "Correct the path. A name without a folder and without .yaml means a pipeline that ships: `chunkwise list`.",
    ),
    codes.ENCODING: (
        "A pipeline is a text in UTF-8. It holds no control character, no text direction override and no line break "
        "that YAML 1.2 does not know, raw or as an escape: they read differently from what they do.",
        r'summary: "gated\0delta"',
        "Save the file as UTF-8 and remove the character at the place shown.",
    ),
    codes.YAML_SYNTAX: (
        "The text is no YAML, or not the YAML that was meant. In { } and [ ] a comma ends an entry even inside "
        "parentheses, so text that holds a comma is quoted there. Tabs do not indent. A file holds one document.",
        "definition: {step: [S = S + outer(k, v)]}",
        'Quote the text, or write one item a line:\n\n    step:\n      - S = S + outer(k, v)',
    ),
    codes.DUPLICATE_KEY: (
        "A key stands twice in one mapping. Most YAML readers keep the last one in silence; here it is an error.",
        "axes: {C: 64, C: 128}",
        "Remove one of the two.",
    ),
    codes.YAML_FEATURE: (
        "Tags (!!python/object, !!str) and merge keys (<<) are not read: a file from anywhere must be safe to load, "
        "and each thing is written in one way. Anchors and aliases work.",
        "summary: !!str 3",
        "Quote a value to make it a text. Write merged keys out, or alias a whole value.",
    ),
    codes.LIMIT: (
        "Files are limited to 256 KiB, 32 levels, 10,000 values with aliases written out, and integers of 40 digits, "
        "so that a hostile file costs no more than a moment. A file and those that it extends count together, and "
        "are eight at most.",
        "axes: {C: 64000000000000000000000000000000000000000}",
        "Split the pipeline, or write fewer aliases of aliases and shorter numbers.",
    ),
}
