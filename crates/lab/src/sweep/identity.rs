//! What makes two runs the same run.

use std::fmt::{Debug, Display};

use nap_engine::config::RunConfig;
use nap_engine::train::NUMERICS_VERSION;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// A run's id: the first 64 bits of the SHA-256 of the JSON object
/// `{"numerics":N,"precision":"f32","config":{...}}`, the configuration with every other
/// key in the order of `nap config` and without spaces, without the places of data of one's own
/// (whose digest it has). Written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

impl RunId {
    /// The id of a run of this program.
    pub fn of(config: &RunConfig) -> Self {
        Self::of_version(config, NUMERICS_VERSION)
    }

    /// The id of a run under a numerics version.
    pub fn of_version(config: &RunConfig, numerics: u32) -> Self {
        #[derive(Serialize)]
        struct Identity<'a> {
            numerics: u32,
            precision: &'a str,
            config: serde_json::Value,
        }
        let precision = config.train.precision.name();
        let plain = "plain values serialise";
        let mut config = serde_json::to_value(config).unwrap_or_else(|_| unreachable!("{plain}"));
        if let Some(train) = config["train"].as_object_mut() {
            train.shift_remove("precision");
        }
        if let Some(data) = config["task"].get_mut("data").and_then(|data| data.as_object_mut()) {
            data.shift_remove("train");
            data.shift_remove("valid");
        }
        let json = serde_json::to_vec(&Identity { numerics, precision, config })
            .unwrap_or_else(|_| unreachable!("{plain}"));
        let hash = Sha256::digest(json);
        Self(hash.iter().take(8).fold(0, |id, &byte| id << 8 | u64::from(byte)))
    }
}

impl Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Debug for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Display::fmt(self, f)
    }
}

impl std::str::FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|_| digits);
        id.map(Self).ok_or_else(|| format!("id {text:?}: expected 16 hexadecimal digits"))
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_the_content() {
        let config = RunConfig::paper();
        let id = RunId::of(&config);
        // Pinned: an id that changes makes every finished run unfinished. Change it together
        // with NUMERICS_VERSION only.
        assert_eq!(RunId::of_version(&config, 1).to_string(), "20b62e4eaf5134bf");
        let mut other = config.clone();
        other.train.seed = 1;
        assert_ne!(RunId::of(&other), id);
        let mut other = config.clone();
        other.train.precision = nap_engine::config::Precision::Bf16;
        assert_ne!(RunId::of(&other), id);
        assert_ne!(RunId::of_version(&config, NUMERICS_VERSION + 1), id);
        assert_eq!(id.to_string().parse::<RunId>().unwrap(), id);
        assert!("12".parse::<RunId>().is_err() && "+123456789abcdef".parse::<RunId>().is_err());
    }
}
