//! Data files: JSON lines or CSV, plain or gzip, read record by record.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use nap_engine::data::Label;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::error::bad;

/// No line is longer, in bytes.
const LONGEST_LINE: u64 = 64 << 20;

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

/// What a record is labelled with.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A class or a position.
    One(Label),
    /// A class per token.
    Many(Vec<Label>),
}

/// A sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its line, from 1.
    pub line: u64,
    /// One at least.
    pub tokens: Vec<Label>,
    /// Its label, if it has one.
    pub answer: Option<Answer>,
}

/// A file's records in their order.
pub struct Records {
    place: String,
    tokenize: Option<Tokenize>,
    lines: Lines,
}

enum Lines {
    Json { input: Box<dyn BufRead>, line: u64, bytes: Vec<u8> },
    Csv { input: Box<csv::Reader<Box<dyn BufRead>>>, columns: Columns },
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
        let mut input: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 16, input));
        if input.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]) {
            let plain = MultiGzDecoder::new(input);
            input = Box::new(BufReader::with_capacity(1 << 16, plain));
        }
        if input.fill_buf().map_err(unreadable)?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        let start = input.fill_buf().map_err(unreadable)?;
        let first = start.iter().copied().find(|byte| !byte.is_ascii_whitespace());
        let place = place.to_owned();
        let lines = match first {
            None | Some(b'{') => Lines::Json { input, line: 0, bytes: Vec::new() },
            Some(_) => {
                let mut input = Box::new(csv::ReaderBuilder::new().from_reader(input));
                let header = input.headers().map_err(|error| wrong_csv(&place, &error))?;
                let column = |name: &str| header.iter().position(|column| column.trim() == name);
                let [tokens, text, label] = ["tokens", "text", "label"].map(column);
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
        Ok(Self { place, tokenize, lines })
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
        let tokens = match (tokens, text, self.tokenize) {
            (_, Some(text), Some(tokenize)) => tokenize.tokens(&text),
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
        Ok(Some(Record { line, tokens, answer: label }))
    }

    fn fields(&mut self) -> anyhow::Result<Option<(u64, Fields)>> {
        let place = &self.place;
        match &mut self.lines {
            Lines::Json { input, line, bytes } => loop {
                *line += 1;
                bytes.clear();
                let wrong = |what: String| Err(bad(format!("{place}, line {line}: {what}")));
                match input.take(LONGEST_LINE).read_until(b'\n', bytes) {
                    Ok(0) => return Ok(None),
                    Ok(_) => {}
                    Err(error) => return wrong(format!("cannot be read: {error}")),
                }
                if bytes.len() as u64 == LONGEST_LINE {
                    return wrong(format!("longer than {} MiB", LONGEST_LINE >> 20));
                }
                let Ok(text) = std::str::from_utf8(bytes) else {
                    return wrong("not UTF-8".to_owned());
                };
                if text.trim().is_empty() {
                    continue;
                }
                return match serde_json::from_str(text) {
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
                let mut record = csv::StringRecord::new();
                if !input.read_record(&mut record).map_err(|error| wrong_csv(place, &error))? {
                    return Ok(None);
                }
                let line = record.position().map_or(0, csv::Position::line);
                let field = |column: Option<usize>| column.and_then(|column| record.get(column));
                let label = |text: &str| Answer::One(Label::Text(text.trim().to_owned()));
                let fields = Fields {
                    tokens: field(columns.tokens).map(|text| Items(words(text))),
                    text: field(columns.text).map(str::to_owned),
                    label: field(columns.label).filter(|text| !text.trim().is_empty()).map(label),
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

fn wrong_csv(place: &str, error: &csv::Error) -> anyhow::Error {
    let line = error.position().map_or(1, csv::Position::line);
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

/// What of a record matters; other fields are ignored.
#[derive(serde::Deserialize)]
struct Fields {
    #[serde(default)]
    tokens: Option<Items>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    label: Option<Answer>,
}

struct Items(Vec<Label>);

struct Item(Label);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(AnswerVisitor { expecting: "a list of tokens" })? {
            Answer::Many(items) => Ok(Self(items)),
            Answer::One(_) => Err(D::Error::custom("tokens: expected a list")),
        }
    }
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnswerVisitor { expecting: ITEM })
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(AnswerVisitor { expecting: ITEM })? {
            Answer::One(item) => Ok(Self(item)),
            Answer::Many(_) => Err(D::Error::custom(format!("a list in a list: expected {ITEM}"))),
        }
    }
}

const ITEM: &str = "a whole number or a text";

struct AnswerVisitor {
    expecting: &'static str,
}

impl<'de> Visitor<'de> for AnswerVisitor {
    type Value = Answer;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Answer, E> {
        Ok(Answer::One(Label::Whole(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Answer, E> {
        let number = i64::try_from(number).map_err(|_| E::custom("a number beyond 64 bits"))?;
        Ok(Answer::One(Label::Whole(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Answer, E> {
        Ok(Answer::One(Label::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Answer, A::Error> {
        let mut items = Vec::new();
        while let Some(Item(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(Answer::Many(items))
    }
}
