//! The readers of foreign files on arbitrary bytes and on damaged files: sweep files, journals,
//! checkpoints. `fuzz/` holds the same checks to far more inputs.

#[path = "../../../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

/// The files of a target to start from, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let paths = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    };
    let mut seeds: Vec<_> = paths.map(read).collect();
    seeds.sort();
    seeds
}

/// The names of the seeds that are accepted.
fn accepted(target: &str, check: impl Fn(&[u8]) -> bool) -> Vec<String> {
    let seeds = seeds(target).into_iter().filter(|(_, bytes)| check(bytes));
    seeds.map(|(name, _)| name).collect()
}

/// Damage to a file.
#[derive(Debug, Clone)]
enum Edit {
    Flip(Index, u8),
    Replace(Index, u8),
    Cut(Index, usize),
    Insert(Index, Vec<u8>),
    Duplicate(Index, usize, Index),
    End(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    // What the formats are written with; numbers at the ends of their ranges.
    let text = prop::sample::select(vec![
        "0",
        "9",
        "-",
        ".",
        "e",
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        "=",
        ",",
        ":",
        "\n",
        "\u{0}",
        "null",
        "true",
        "nan",
        "-inf",
        "1e999",
        "9223372036854775807",
        "-9223372036854775808",
        "-2147483648",
        "18446744073709551616",
        "0.3^5",
    ]);
    let inserted = prop_oneof![
        text.prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..9),
    ];
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, 1 << bit)),
        (at(), b' '..=b'~').prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (at(), 1..40usize).prop_map(|(at, count)| Edit::Cut(at, count)),
        (at(), inserted).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 1..400usize, at()).prop_map(|(at, count, to)| Edit::Duplicate(at, count, to)),
        at().prop_map(Edit::End),
    ]
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        let slice = |at: &Index, count: &usize| {
            let at = at.index(length);
            at..(at + count).min(length)
        };
        match self {
            Edit::Flip(at, bits) => bytes[at.index(length)] ^= bits,
            Edit::Replace(at, byte) => bytes[at.index(length)] = *byte,
            Edit::Cut(at, count) => drop(bytes.drain(slice(at, count))),
            Edit::Insert(at, inserted) => {
                let at = at.index(length);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Edit::Duplicate(at, count, to) => {
                let copy = bytes[slice(at, count)].to_vec();
                let to = to.index(length);
                bytes.splice(to..to, copy);
            }
            Edit::End(at) => bytes.truncate(at.index(length)),
        }
    }
}

/// Seeds of a target, damaged.
fn damaged(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds: Vec<_> = seeds(target).into_iter().map(|(_, bytes)| bytes).collect();
    (prop::sample::select(seeds), prop::collection::vec(edit(), 0..4)).prop_map(
        |(mut bytes, edits)| {
            for edit in edits {
                edit.apply(&mut bytes);
            }
            bytes
        },
    )
}

/// Checkpoints with a damaged header whose length is right all the same.
fn damaged_headers() -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<_> = seeds("checkpoint").into_iter().map(|(_, bytes)| bytes).collect();
    (prop::sample::select(seeds), prop::collection::vec(edit(), 1..4)).prop_map(|(bytes, edits)| {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let (header, data) = bytes[8..].split_at(length);
        let mut header = header.to_vec();
        for edit in edits {
            edit.apply(&mut header);
        }
        [&(header.len() as u64).to_le_bytes()[..], &header, data].concat()
    })
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

#[test]
fn whole_files_are_accepted() {
    let sweeps = ["heads", "least-bias", "lists", "powers", "stored", "values", "with"];
    let sweeps = sweeps.map(|name| format!("{name}.toml"));
    assert_eq!(accepted("sweep_file", checks::sweep_file), sweeps);
    // These two belong to the numerics version: fuzz/README.md says how they are made.
    let records = ["diverged", "failed", "finished", "mixed"].map(|name| format!("{name}.jsonl"));
    assert_eq!(accepted("journal", |bytes| checks::journal(bytes) > 0), records);
    let checkpoints = ["cases.safetensors", "last.safetensors"];
    assert_eq!(accepted("checkpoint", checks::checkpoint), checkpoints);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_as_a_sweep_file(bytes in anything()) {
        checks::sweep_file(&bytes);
    }

    #[test]
    fn any_bytes_as_a_journal(bytes in anything()) {
        checks::journal(&bytes);
    }

    #[test]
    fn any_bytes_as_a_checkpoint(bytes in anything()) {
        checks::checkpoint(&bytes);
    }

    #[test]
    fn damaged_sweep_files(bytes in damaged("sweep_file")) {
        checks::sweep_file(&bytes);
    }

    #[test]
    fn damaged_journals(bytes in damaged("journal")) {
        checks::journal(&bytes);
    }

    #[test]
    fn damaged_checkpoints(bytes in damaged("checkpoint")) {
        checks::checkpoint(&bytes);
    }

    #[test]
    fn checkpoints_with_damaged_headers(bytes in damaged_headers()) {
        checks::checkpoint(&bytes);
    }
}
