//! Selection of the key that seals handles: from the configuration, else from the data directory,
//! else random.

use super::GatewayError;
use crate::config::Settings;
use crate::seal::Sealer;

pub(super) fn sealer(settings: &Settings) -> Result<Sealer, GatewayError> {
    if !settings.seal_keys.is_empty() {
        return Ok(Sealer::new(settings.seal_keys.iter().map(|key| key.expose().as_bytes()))?);
    }
    if let Some(dir) = &settings.tasks.data_dir {
        let key = crate::tasks::seal_key_file::seal_key(dir)?;
        return Ok(Sealer::new([key.expose().as_bytes()])?);
    }
    tracing::warn!(
        "no seal_key: sessions and task handles end with this process and work on no other replica; set seal_key, or \
         tasks.data_dir, where one is kept"
    );
    let random: [u8; 32] = rand::random();
    Ok(Sealer::new([random.as_slice()])?)
}
