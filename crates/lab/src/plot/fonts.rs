//! The typeface of every picture: Inter, part of the program (`assets/fonts`).

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resvg::usvg::fontdb::Database;

/// What SVG and CSS call it, and what may stand in for it.
pub const FAMILY: &str = "Inter, 'Helvetica Neue', Arial, sans-serif";

/// Weight, as `@font-face` has it, and as rasterising reads it.
const FACES: [(u32, &[u8], &[u8]); 2] = [
    (
        400,
        include_bytes!("../../assets/fonts/Inter-Regular.woff2"),
        include_bytes!("../../assets/fonts/Inter-Regular.otf"),
    ),
    (
        600,
        include_bytes!("../../assets/fonts/Inter-SemiBold.woff2"),
        include_bytes!("../../assets/fonts/Inter-SemiBold.otf"),
    ),
];

/// The typeface as rules of a style sheet, with the files in them.
pub fn css() -> String {
    let face = |(weight, woff2, _): &(u32, &[u8], &[u8])| {
        let data = STANDARD.encode(woff2);
        format!(
            "@font-face {{ font-family: Inter; font-weight: {weight}; \
             src: url(data:font/woff2;base64,{data}) format('woff2'); }}\n"
        )
    };
    FACES.iter().map(face).collect()
}

/// The typeface for rasterising, and no other.
pub fn database() -> Arc<Database> {
    static DATABASE: OnceLock<Arc<Database>> = OnceLock::new();
    let read = || {
        let mut database = Database::new();
        FACES.iter().for_each(|(_, _, otf)| database.load_font_data(otf.to_vec()));
        Arc::new(database)
    };
    DATABASE.get_or_init(read).clone()
}
