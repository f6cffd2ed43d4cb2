//! Data files: JSON lines or CSV, plain or gzip, read record by record.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use nap_engine::data::Label;
use serde::de::DeserializeSeed;

use super::fields::{Answer, Fields, Items, Wanted};
use crate::error::bad;

/// No line is longer, in bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// Bytes that are read ahead.
const AHEAD: usize = 1 << 16;

/// How texts become tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tokenize {
    /// Words between white space
    Whitespace,
    /// Every character, white space included
    Char,
}

impl Tokenize {
    /// The name, as options and configurations spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whitespace => "whitespace",
            Self::Char => "char",
        }
    }

    /// By its name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        let all = [Self::Whitespace, Self::Char];
        let wrong = || bad(format!("tokenize {name}: expected whitespace or char"));
        all.into_iter().find(|tokenize| tokenize.name() == name).ok_or_else(wrong)
    }

    /// A text's tokens.
    pub fn tokens(self, text: &str) -> Vec<Label> {
        match self {
            Self::Whitespace => words(text),
            Self::Char => text.chars().map(|c| Label::Text(c.to_string())).collect(),
        }
    }
}

/// A sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its line, from 1.
    pub line: u64,
    /// Whether it is of a format that does not tell numbers from texts.
    pub untyped: bool,
    /// One at least.
    pub tokens: Vec<Label>,
    /// Its label, if it has one.
    pub answer: Option<Answer>,
}

/// A file's records in their order.
pub struct Records {
    place: String,
    wanted: Wanted,
    had_texts: bool,
    lines: Lines,
}

enum Lines {
    Json { input: BufReader<Source>, line: u64, bytes: Vec<u8>, position: u64 },
    Csv { input: Box<csv::Reader<Source>>, columns: Columns },
}

/// Plain bytes on their way to the reader of a format, which reads ahead.
struct Source {
    input: Box<dyn BufRead>,
    /// Bytes that were handed on.
    count: u64,
    /// How many of them end where the last line with anything in it ends.
    lines: u64,
    /// Whether there is anything in the line that follows.
    something: bool,
    /// Where the record begins that is being read.
    record: u64,
}

impl Read for Source {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if self.count - self.record > LONGEST_LINE {
            return Err(std::io::Error::other(too_long()));
        }
        let count = self.input.read(bytes)?;
        for (at, byte) in (self.count..).zip(&bytes[..count]) {
            if !byte.is_ascii_whitespace() {
                self.something = true;
            } else if matches!(byte, b'\n' | b'\r') && self.something {
                (self.lines, self.something) = (at, false);
            }
        }
        self.count += count as u64;
        Ok(count)
    }
}

fn too_long() -> String {
    format!("longer than {} MiB", LONGEST_LINE >> 20)
}

/// Where a CSV file has what.
#[derive(Debug, Clone, Copy)]
struct Columns {
    tokens: Option<usize>,
    text: Option<usize>,
    label: Option<usize>,
}

impl Records {
    /// Of a file.
    ///
    /// # Errors
    /// If it cannot be read, or is neither of the formats.
    pub fn open(path: &Path, tokenize: Option<Tokenize>) -> anyhow::Result<Self> {
        let place = path.display().to_string();
        let unreadable = |error| bad(format!("cannot read {place}: {error}"));
        if path.is_dir() {
            return Err(bad(format!("cannot read {place}: it is a directory")));
        }
        let file = File::open(path).map_err(unreadable)?;
        Self::read(Box::new(file), &place, tokenize)
    }

    /// Of anything that can be read; `place` names it in errors.
    ///
    /// # Errors
    /// As [`Records::open`].
    pub fn read(
        input: Box<dyn Read>,
        place: &str,
        tokenize: Option<Tokenize>,
    ) -> anyhow::Result<Self> {
        let unreadable = |error| bad(format!("cannot read {place}: {error}"));
        let mut input: Box<dyn BufRead> = Box::new(BufReader::with_capacity(AHEAD, input));
        if input.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]) {
            let plain = MultiGzDecoder::new(input);
            input = Box::new(BufReader::with_capacity(AHEAD, plain));
        }
        if input.fill_buf().map_err(unreadable)?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        let start = input.fill_buf().map_err(unreadable)?;
        let first = start.iter().copied().find(|byte| !byte.is_ascii_whitespace());
        let place = place.to_owned();
        let input = Source { input, count: 0, lines: 0, something: false, record: 0 };
        let lines = match first {
            None | Some(b'{') => {
                let input = BufReader::with_capacity(AHEAD, input);
                Lines::Json { input, line: 0, bytes: Vec::new(), position: 0 }
            }
            Some(_) => {
                let mut reader = csv::ReaderBuilder::new();
                let mut input = Box::new(reader.buffer_capacity(AHEAD).from_reader(input));
                let header = input.headers().map_err(|error| wrong_csv(&place, 1, &error))?;
                let columns =
                    |name: &str| header.iter().filter(|column| column.trim() == name).count();
                let names = ["tokens", "text", "label"];
                if let Some(name) = names.into_iter().find(|name| columns(name) > 1) {
                    return Err(bad(format!("{place}, line 1: several columns {name}")));
                }
                let column = |name: &str| header.iter().position(|column| column.trim() == name);
                let [tokens, text, label] = names.map(column);
                if tokens.is_none() && text.is_none() {
                    return Err(bad(format!(
                        "{place}, line 1: expected a JSON object such as \
                         {{\"tokens\": [3, 1], \"label\": 0}}, or the header of a CSV file with \
                         a column tokens or text"
                    )));
                }
                Lines::Csv { input, columns: Columns { tokens, text, label } }
            }
        };
        let wanted = Wanted { tokenize, labels: true };
        Ok(Self { place, wanted, had_texts: false, lines })
    }

    /// The same records without their labels, which may be anything.
    #[must_use]
    pub fn without_labels(mut self) -> Self {
        self.wanted.labels = false;
        self
    }

    /// Whether the next record can be read without waiting for whoever writes it.
    pub fn is_ready(&self) -> bool {
        let (source, position) = match &self.lines {
            Lines::Json { input, position, .. } => (input.get_ref(), *position),
            Lines::Csv { input, .. } => (input.get_ref(), input.position().byte()),
        };
        position < source.lines
    }

    /// Whether texts have become tokens so far.
    pub fn had_texts(&self) -> bool {
        self.had_texts
    }

    /// What errors name it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// An error in a line.
    pub fn wrong(&self, line: u64, what: impl std::fmt::Display) -> anyhow::Error {
        bad(format!("{}, line {line}: {what}", self.place))
    }

    /// The next record.
    ///
    /// # Errors
    /// On a line that cannot be used.
    pub fn read_record(&mut self) -> anyhow::Result<Option<Record>> {
        let Some((line, Fields { tokens, text, label })) = self.fields()? else { return Ok(None) };
        let tokens = match (tokens, text, self.wanted.tokenize) {
            (_, Some(text), Some(tokenize)) => {
                self.had_texts = true;
                tokenize.tokens(&text)
            }
            (Some(tokens), _, _) => tokens.0,
            (None, Some(_), None) => {
                let what = "a text: expected --tokenize whitespace or char";
                return Err(self.wrong(line, what));
            }
            (None, None, None) => return Err(self.wrong(line, "no tokens and no text")),
            (None, None, Some(_)) => return Err(self.wrong(line, "no text")),
        };
        if tokens.is_empty() {
            return Err(self.wrong(line, "a sequence without tokens"));
        }
        if tokens.len() > 1 << 20 {
            let what = format!("{} tokens: expected 1048576 at most", tokens.len());
            return Err(self.wrong(line, what));
        }
        let untyped = matches!(self.lines, Lines::Csv { .. });
        Ok(Some(Record { line, untyped, tokens, answer: label }))
    }

    fn fields(&mut self) -> anyhow::Result<Option<(u64, Fields)>> {
        let (place, wanted) = (&self.place, self.wanted);
        match &mut self.lines {
            Lines::Json { input, line, bytes, position } => loop {
                *line += 1;
                bytes.clear();
                let wrong = |what: String| Err(bad(format!("{place}, line {line}: {what}")));
                input.get_mut().record = *position;
                match input.take(LONGEST_LINE).read_until(b'\n', bytes) {
                    Ok(0) => return Ok(None),
                    Ok(count) => *position += count as u64,
                    Err(error) => return wrong(format!("cannot be read: {error}")),
                }
                if bytes.len() as u64 == LONGEST_LINE {
                    return wrong(too_long());
                }
                let Ok(text) = std::str::from_utf8(bytes) else {
                    return wrong("not UTF-8".to_owned());
                };
                if text.trim().is_empty() {
                    continue;
                }
                let mut json = serde_json::Deserializer::from_str(text);
                let fields = wanted.deserialize(&mut json);
                return match fields.and_then(|fields| json.end().map(|()| fields)) {
                    Ok(fields) => Ok(Some((*line, fields))),
                    Err(error) => {
                        let column = error.column();
                        let text = error.to_string();
                        let text = text.split(" at line ").next().unwrap_or_default();
                        wrong(format!("column {column}: {text}"))
                    }
                };
            },
            Lines::Csv { input, columns } => {
                let start = input.position().clone();
                input.get_mut().record = start.byte();
                let mut record = csv::StringRecord::new();
                let wrong = |error| wrong_csv(place, start.line(), &error);
                if !input.read_record(&mut record).map_err(wrong)? {
                    return Ok(None);
                }
                let line = record.position().map_or(0, csv::Position::line);
                let field = |column: Option<usize>| column.and_then(|column| record.get(column));
                let tokens = field(columns.tokens);
                let text = field(columns.text);
                let label = field(columns.label).filter(|_| wanted.labels);
                // A quotation mark that opens a field and that none closes takes in the lines
                // that follow.
                let breaks =
                    |text: Option<&str>| text.is_some_and(|text| text.contains(['\n', '\r']));
                for (name, text) in [("tokens", tokens), ("label", label)] {
                    if breaks(text) {
                        return Err(bad(format!(
                            "{place}, line {line}: {name} in quotes goes on in the next line"
                        )));
                    }
                }
                let label = label.filter(|text| !text.trim().is_empty());
                let label = label.map(|text| Label::Text(text.trim().to_owned()));
                let fields = Fields {
                    tokens: tokens.map(|text| Items(words(text))),
                    text: text.map(str::to_owned),
                    label: label.map(Answer::One),
                };
                Ok(Some((line, fields)))
            }
        }
    }
}

/// Words between white space, as tokens.
pub fn words(text: &str) -> Vec<Label> {
    text.split_whitespace().map(|word| Label::Text(word.to_owned())).collect()
}

fn wrong_csv(place: &str, line: u64, error: &csv::Error) -> anyhow::Error {
    let line = error.position().map_or(line, csv::Position::line);
    let what = match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields: expected {expected_len}, as in the header")
        }
        csv::ErrorKind::Io(error) => format!("cannot be read: {error}"),
        _ => error.to_string(),
    };
    bad(format!("{place}, line {line}: {what}"))
}
