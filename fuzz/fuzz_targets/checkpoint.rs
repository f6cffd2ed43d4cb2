#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code)]
mod checks;

use serde_json::Value;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::checkpoint(bytes);
    if let Some(mended) = mended(bytes) {
        checks::checkpoint(&mended);
    }
});

/// The file with the length of its header put right, if that alone is wrong: an edit of the header
/// would almost always be refused for it.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let body = bytes.get(8..)?;
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    let header = values.next()?.ok()?;
    let ends = header
        .as_object()?
        .values()
        .filter_map(|tensor| tensor.get("data_offsets")?.get(1)?.as_u64()?.try_into().ok());
    let length = body.len().checked_sub(ends.max().unwrap_or(0usize))?;
    let mut mended = bytes.to_vec();
    mended[..8].copy_from_slice(&(length as u64).to_le_bytes());
    (length >= values.byte_offset() && mended != bytes).then_some(mended)
}
