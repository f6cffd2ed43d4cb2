//! Names of tokens and classes, and their numbers.

use std::collections::HashMap;

use nap_engine::config::TaskName;
use nap_engine::data::{Label, Names, UNKNOWN};

use super::fields::Answer;
use super::records::{Record, words};

/// The token that stands for all others.
pub const UNKNOWN_NAME: &str = "<unk>";

/// The most different tokens, and classes.
const MOST: usize = 1 << 20;

/// Numbers by name.
#[derive(Debug, Default)]
struct Numbers {
    by_name: HashMap<String, u32>,
    names: Vec<Label>,
    /// Names that are new get a number.
    open: bool,
    /// A name's text.
    text: String,
}

impl Numbers {
    /// A name's number, if it has or gets one.
    fn number(&mut self, name: &Label) -> Result<Option<u32>, String> {
        let text = match name {
            Label::Text(text) => text,
            Label::Whole(number) => {
                use std::fmt::Write;
                self.text.clear();
                // Writing to a string does not fail.
                let _ = write!(self.text, "{number}");
                &self.text
            }
        };
        if let Some(&number) = self.by_name.get(text) {
            return Ok(Some(number));
        }
        if !self.open {
            return Ok(None);
        }
        let number = self.names.len();
        if number == MOST {
            return Err(format!("more than {MOST} different ones"));
        }
        self.by_name.insert(text.clone(), number as u32);
        self.names.push(name.clone());
        Ok(Some(number as u32))
    }

    /// Names in their final order, and the final number of each: by size if all from number
    /// `fixed` on are whole numbers, else as texts.
    fn sorted(&self, fixed: usize) -> (Vec<Label>, Vec<u32>) {
        let whole = |name: &Label| match name {
            Label::Whole(number) => Some(*number),
            // As it would be written, or it would not come back as it was.
            Label::Text(text) => text.parse().ok().filter(|n: &i64| n.to_string() == *text),
        };
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        let numbers: Option<Vec<i64>> = self.names[fixed..].iter().map(whole).collect();
        match numbers {
            Some(numbers) => order[fixed..].sort_by_key(|&i| numbers[i - fixed]),
            None => order[fixed..].sort_by_key(|&i| self.names[i].to_string()),
        }
        let mut final_numbers = vec![0; order.len()];
        for (number, &i) in order.iter().enumerate() {
            final_numbers[i] = number as u32;
        }
        (order.iter().map(|&i| self.names[i].clone()).collect(), final_numbers)
    }
}

/// Turns records into numbers: of the names it has met, or of those of a model.
#[derive(Debug)]
pub struct Encoder {
    task: TaskName,
    tokens: Numbers,
    labels: Numbers,
    /// Whether the first token was a number, and its line; the same of labels.
    kinds: [Option<(bool, u64)>; 2],
    /// Whether labels may be numbers that are written as texts.
    untyped: bool,
}

impl Encoder {
    /// One that collects the names.
    pub fn collecting(task: TaskName) -> Self {
        let mut tokens = Numbers { open: true, ..Numbers::default() };
        tokens.by_name.insert(UNKNOWN_NAME.to_owned(), UNKNOWN);
        tokens.names.push(Label::Text(UNKNOWN_NAME.to_owned()));
        let labels = Numbers { open: true, ..Numbers::default() };
        Self { task, tokens, labels, kinds: [None; 2], untyped: false }
    }

    /// One with the names of a model.
    pub fn of(task: TaskName, names: &Names) -> Self {
        let numbers = |names: Vec<Label>| Numbers {
            by_name: names.iter().map(Label::to_string).zip(0..).collect(),
            names,
            ..Numbers::default()
        };
        let tokens = names.tokens.iter().map(|name| Label::Text(name.clone())).collect();
        let labels = numbers(names.labels.clone());
        Self { task, tokens: numbers(tokens), labels, kinds: [None; 2], untyped: false }
    }

    /// Collects no more: from now on, a new token is `<unk>` and a new label an error.
    pub fn close(&mut self) {
        (self.tokens.open, self.labels.open) = (false, false);
        self.kinds = [None; 2];
    }

    /// The token ids of a record.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn tokens(&mut self, record: &Record) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity(record.tokens.len());
        for token in &record.tokens {
            check_kind(&mut self.kinds[0], "token", token, record.line)?;
            let number = self.tokens.number(token).map_err(|error| format!("tokens: {error}"))?;
            ids.push(number.unwrap_or(UNKNOWN));
        }
        Ok(ids)
    }

    /// The answer of a record: a class, a position, or a class per token.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn targets(&mut self, record: &Record) -> Result<Vec<u32>, String> {
        self.untyped |= self.labels.open && record.untyped;
        let n = record.tokens.len();
        let answer = record.answer.as_ref().ok_or("no label")?;
        match (self.task, answer) {
            (TaskName::Tag, Answer::One(Label::Text(text))) => {
                self.tags(words(text), record.line, n)
            }
            (TaskName::Tag, Answer::One(label)) => {
                Err(format!("label {label}: expected a list with a label per token"))
            }
            (TaskName::Tag, Answer::Many(labels)) => self.tags(labels.clone(), record.line, n),
            (TaskName::Point, Answer::One(label)) => {
                let place = label.to_string().parse::<u32>().ok().filter(|&at| (at as usize) < n);
                let wrong = || format!("label {label}: expected a position from 0 to {}", n - 1);
                Ok(vec![place.ok_or_else(wrong)?])
            }
            (_, Answer::One(label)) => Ok(vec![self.class(label, record.line)?]),
            (_, Answer::Many(_)) => {
                Err("a list of labels: expected one label; the task `tag` has a list".to_owned())
            }
        }
    }

    fn tags(&mut self, labels: Vec<Label>, line: u64, n: usize) -> Result<Vec<u32>, String> {
        if labels.len() != n {
            return Err(format!("{} labels for {n} tokens", labels.len()));
        }
        labels.iter().map(|label| self.class(label, line)).collect()
    }

    fn class(&mut self, label: &Label, line: u64) -> Result<u32, String> {
        check_kind(&mut self.kinds[1], "label", label, line)?;
        let number = self.labels.number(label).map_err(|error| format!("labels: {error}"))?;
        number.ok_or_else(|| {
            let (names, _) = self.labels.sorted(0);
            let known: Vec<_> = names.iter().take(10).map(Label::to_string).collect();
            let more = if self.labels.names.len() > known.len() { ", ..." } else { "" };
            format!("label {label} does not occur in training: expected {}{more}", known.join(", "))
        })
    }

    /// The names in their final order, and the final numbers of tokens and, where there are any,
    /// classes.
    pub fn names(&self) -> (Names, Vec<u32>, Option<Vec<u32>>) {
        let (tokens, token_numbers) = self.tokens.sorted(1);
        let (mut labels, label_numbers) = self.labels.sorted(0);
        // Of a CSV file, texts that are all whole numbers mean these.
        let whole = |label: &Label| label.to_string().parse().ok().map(Label::Whole);
        let wholes: Option<Vec<Label>> = labels.iter().map(whole).collect();
        let same = |wholes: &Vec<Label>| {
            wholes.iter().zip(&labels).all(|(a, b)| a.to_string() == b.to_string())
        };
        if let Some(wholes) = wholes.filter(|wholes| self.untyped && same(wholes)) {
            labels = wholes;
        }
        let tokens = tokens.iter().map(Label::to_string).collect();
        let classes = (self.task != TaskName::Point).then_some(label_numbers);
        (Names { tokens, labels }, token_numbers, classes)
    }
}

/// A file's tokens are all numbers or all texts, and so are its labels.
fn check_kind(
    kind: &mut Option<(bool, u64)>,
    what: &str,
    item: &Label,
    line: u64,
) -> Result<(), String> {
    let whole = matches!(item, Label::Whole(_));
    let (first, at) = *kind.get_or_insert((whole, line));
    if first == whole {
        return Ok(());
    }
    let name = |whole| if whole { "a whole number" } else { "a text" };
    Err(format!("{what} {item} is {}, that of line {at} {}", name(whole), name(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_were_written_as_texts_stay_texts_where_formats_tell() {
        for (untyped, expected) in [
            (true, [2, 10].map(Label::Whole)),
            (false, ["2", "10"].map(|text| Label::Text(text.to_owned()))),
        ] {
            let mut encoder = Encoder::collecting(TaskName::Classify);
            for label in ["10", "2"] {
                let answer = Some(Answer::One(Label::Text(label.to_owned())));
                let record = Record { line: 1, untyped, tokens: vec![Label::Whole(1)], answer };
                encoder.targets(&record).unwrap();
            }
            let (names, _, classes) = encoder.names();
            assert_eq!((names.labels, classes), (expected.to_vec(), Some(vec![1, 0])));
        }
    }
}
