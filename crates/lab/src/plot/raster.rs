//! From SVG to pixels: PNG, and GIF for animations.

use std::collections::HashMap;

use anyhow::Context;
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use super::fonts;

/// Hundredths of a second a frame of an animation is shown, and its last frame.
const FRAME: u16 = 18;
const LAST_FRAME: u16 = 150;

/// The picture with `scale` pixels per CSS pixel.
///
/// # Errors
/// If the text is no SVG, or the picture is too large.
pub fn pixels(svg: &str, scale: f64) -> anyhow::Result<Pixmap> {
    let options = Options {
        fontdb: fonts::database(),
        font_family: "Inter".to_owned(),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).context("the picture cannot be drawn")?;
    let size = tree.size();
    let length = |x: f32| (f64::from(x) * scale).round() as u32;
    let mut pixmap = Pixmap::new(length(size.width()), length(size.height()))
        .context("the picture is too large")?;
    // A fraction of a pixel at the edges would stay transparent.
    pixmap.fill(Color::WHITE);
    let scale = scale as f32;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    Ok(pixmap)
}

/// A PNG file.
///
/// # Errors
/// As [`pixels`].
pub fn png(svg: &str, scale: f64) -> anyhow::Result<Vec<u8>> {
    pixels(svg, scale)?.encode_png().context("the picture cannot be encoded")
}

/// An animation that repeats, as a GIF file.
///
/// # Errors
/// As [`pixels`]; and for pictures wider or higher than 65,535 pixels.
pub fn gif(frames: &[String], scale: f64) -> anyhow::Result<Vec<u8>> {
    let frames = frames.iter().map(|svg| pixels(svg, scale));
    let frames = frames.collect::<anyhow::Result<Vec<_>>>()?;
    let first = frames.first().context("no frames")?;
    let size = |x: u32| u16::try_from(x).context("the picture is too large");
    let (width, height) = (size(first.width())?, size(first.height())?);
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, width, height, &[])?;
    encoder.set_repeat(gif::Repeat::Infinite)?;
    for (i, pixmap) in frames.iter().enumerate() {
        let same = (pixmap.width(), pixmap.height()) == (first.width(), first.height());
        anyhow::ensure!(same, "frame {} has another size than the first", i + 1);
        let (palette, indices) = reduced(pixmap.data());
        let delay = if i + 1 == frames.len() { LAST_FRAME } else { FRAME };
        let frame = gif::Frame::from_palette_pixels(width, height, indices, palette, None);
        encoder.write_frame(&gif::Frame { delay, ..frame })?;
    }
    drop(encoder);
    Ok(bytes)
}

/// A palette of 256 colours and each opaque pixel's place in it.
fn reduced(rgba: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let network = color_quant::NeuQuant::new(10, 256, rgba);
    // Few colours occur often: text, background, the blocks.
    let mut known: HashMap<&[u8], u8> = HashMap::new();
    let place = |pixel| *known.entry(pixel).or_insert_with(|| network.index_of(pixel) as u8);
    let indices = rgba.chunks_exact(4).map(place).collect();
    (network.color_map_rgb(), indices)
}
