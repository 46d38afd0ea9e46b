//! Writes `config/reference.yaml` and `config/schema.json` from the types. Run by `just gen`; a test fails while the files are stale.

use std::{fs, path::Path};

use millstream_config::reference::{reference_yaml, schema_json};

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::write(folder.join("reference.yaml"), reference_yaml())?;
    fs::write(folder.join("schema.json"), schema_json())
}
