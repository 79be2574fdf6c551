//! Seals the names of `concurrency` slots, so that only those who were given a slot can release it.
//!
//! A slot's name is a time and a number, which can be guessed. Its seal cannot: it is an HMAC under a key that the
//! instances of a store share. The first instance chooses the key and keeps it in the store, where the others find it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ring::hmac;
use subtle::ConstantTimeEq as _;
use tollkeeper::{Hold, Key, Limiter};

/// The key in force, and the one before it.
#[derive(Debug)]
pub(crate) struct Seal(Mutex<Keys>);

#[derive(Clone, Copy)]
struct Keys {
    current: [u8; KEY],
    /// Slots that were named under it are still held.
    former: Option<[u8; KEY]>,
}

const KEY: usize = 32;

/// The bytes of a seal: 128 bits.
pub(crate) const LENGTH: usize = 16;

/// Does not print the keys.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Seal {
    /// How often the key in the store is looked at: a store that restarts empty has lost it.
    const FOLLOW: Duration = Duration::from_secs(5);

    /// Under a key of its own.
    pub(crate) fn random() -> anyhow::Result<Seal> {
        let mut current = [0; KEY];
        getrandom::fill(&mut current)
            .map_err(|error| anyhow::anyhow!("the system cannot provide random numbers: {error}"))?;
        Ok(Seal(Mutex::new(Keys { current, former: None })))
    }

    /// Takes over the key of the other instances, or gives them this one. Without a store that answers it stays as it is.
    pub(crate) async fn agree(&self, limiter: &Limiter) {
        let Keys { current, .. } = self.keys();
        let Ok(agreed) = limiter.store().agree("seal", &current).await else { return };
        // Anything else was not written by us.
        let Ok(agreed) = <[u8; KEY]>::try_from(agreed) else { return };
        if agreed != current {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Keys { current: agreed, former: Some(current) };
        }
    }

    /// Agrees with the other instances, now and again from time to time.
    pub(crate) async fn start(self: &Arc<Self>, limiter: &Arc<Limiter>) {
        self.agree(limiter).await;
        let (seal, limiter) = (self.clone(), limiter.clone());
        crate::background::spawn(async move {
            loop {
                tokio::time::sleep(Seal::FOLLOW).await;
                seal.agree(&limiter).await;
            }
        });
    }

    /// The seal of a slot.
    pub(crate) fn of(&self, rule: &str, key: &Key, hold: Hold) -> [u8; LENGTH] {
        under(&self.keys().current, rule, key, hold)
    }

    /// Whether a seal is that of a slot.
    pub(crate) fn fits(&self, seal: &[u8; LENGTH], rule: &str, key: &Key, hold: Hold) -> bool {
        let Keys { current, former } = self.keys();
        let fits = |secret: &[u8; KEY]| bool::from(under(secret, rule, key, hold).ct_eq(seal));
        fits(&current) || former.is_some_and(|former| fits(&former))
    }

    fn keys(&self) -> Keys {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lengths go first, so that no two slots have the same bytes.
fn under(secret: &[u8; KEY], rule: &str, key: &Key, hold: Hold) -> [u8; LENGTH] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    context.update(&(rule.len() as u64).to_le_bytes());
    context.update(rule.as_bytes());
    context.update(&key.variant.to_le_bytes());
    context.update(&hold.at.as_micros().to_le_bytes());
    context.update(&hold.nth.to_le_bytes());
    context.update(key.value.as_bytes());
    let mut seal = [0; LENGTH];
    seal.copy_from_slice(&context.sign().as_ref()[..LENGTH]);
    seal
}

#[cfg(test)]
mod tests {
    use tollkeeper::Timestamp;

    use super::*;

    #[test]
    fn a_seal_fits_only_its_slot_and_only_under_its_key() {
        let (seal, other) = (Seal::random().expect("random"), Seal::random().expect("random"));
        let key = |variant, value: &str| Key { variant, value: value.into() };
        let hold = |at, nth| Hold { at: Timestamp::from_micros(at), nth };
        let given = seal.of("exports", &key(0, "acme"), hold(1_000, 0));
        assert!(seal.fits(&given, "exports", &key(0, "acme"), hold(1_000, 0)));
        assert!(!other.fits(&given, "exports", &key(0, "acme"), hold(1_000, 0)));
        for (rule, key, hold) in [
            ("export", key(0, "acme"), hold(1_000, 0)),
            ("exports", key(1, "acme"), hold(1_000, 0)),
            ("exports", key(0, "acm"), hold(1_000, 0)),
            ("exports", key(0, "acme"), hold(1_001, 0)),
            ("exports", key(0, "acme"), hold(1_000, 1)),
        ] {
            assert!(!seal.fits(&given, rule, &key, hold), "{rule} {key:?} {hold:?}");
        }
    }
}
