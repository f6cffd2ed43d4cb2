//! A JSON object as a record: the fields that are asked for.

use nap_engine::data::Label;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Unexpected, Visitor,
};

use super::records::Tokenize;

/// What a record is labelled with.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A class or a position.
    One(Label),
    /// A class per token.
    Many(Vec<Label>),
}

/// What of a record is read; all else is ignored, whatever it is.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// How texts become tokens; without it there are no texts.
    pub tokenize: Option<Tokenize>,
    /// Whether labels are.
    pub labels: bool,
}

/// What of a record matters.
#[derive(Default)]
pub struct Fields {
    /// Its tokens.
    pub tokens: Option<Items>,
    /// Its text; empty if texts do not become tokens.
    pub text: Option<String>,
    /// Its label.
    pub label: Option<Answer>,
}

impl<'de> DeserializeSeed<'de> for Wanted {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted {
    type Value = Fields;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let twice = |name| Err(A::Error::duplicate_field(name));
        while let Some(name) = map.next_key::<String>()? {
            match &name[..] {
                "tokens" if fields.tokens.is_some() => return twice("tokens"),
                "tokens" => fields.tokens = map.next_value()?,
                "text" if fields.text.is_some() => return twice("text"),
                "text" if self.tokenize.is_some() => fields.text = map.next_value()?,
                // That there is one is told.
                "text" => {
                    let text: Option<IgnoredAny> = map.next_value()?;
                    fields.text = text.map(|_| String::new());
                }
                "label" if fields.label.is_some() => return twice("label"),
                "label" if self.labels => fields.label = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(fields)
    }
}

/// A list of tokens.
pub struct Items(pub Vec<Label>);

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

const TOO_LARGE: &str = "a number beyond 64 bits";

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
        let number = i64::try_from(number).map_err(|_| E::custom(TOO_LARGE))?;
        Ok(Answer::One(Label::Whole(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Answer, E> {
        // What the reader makes of whole numbers that are larger still.
        Err(match number.fract() == 0.0 && number.abs() >= 2f64.powi(63) {
            true => E::custom(TOO_LARGE),
            false => E::invalid_type(Unexpected::Float(number), &self),
        })
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
