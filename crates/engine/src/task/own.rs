//! The tasks on data of one's own, in words.

use super::Info;

const SOURCE: &str = "your data: JSON lines or CSV (docs/data.md)";

/// A class per sequence.
pub const CLASSIFY: Info = Info {
    name: "classify",
    summary: "own data: the class of a sequence",
    rule: "the label of the sequence",
    source: SOURCE,
};

/// A position per sequence.
pub const POINT: Info = Info {
    name: "point",
    summary: "own data: a position in the sequence",
    rule: "the label of the sequence, which counts from 0",
    source: SOURCE,
};

/// A class per token.
pub const TAG: Info = Info {
    name: "tag",
    summary: "own data: the class of every token",
    rule: "the token's label",
    source: SOURCE,
};
