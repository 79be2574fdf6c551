//! The name in a certificate: the first DNS name or URI among its alternative names, otherwise its common name.
//!
//! Parses only the fields on the way there (X.509 as in RFC 5280, encoded as DER). The certificate must have been
//! verified before: a trusted authority then stands behind the name.

const OBJECT_ID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Optional fields of a certificate are identified by a number instead of a type.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// So are the kinds of alternative names.
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
/// UTF8String, NumericString, PrintableString, IA5String, VisibleString: all of them subsets of UTF-8.
const STRINGS: [u8; 5] = [0x0c, 0x12, 0x13, 0x16, 0x1a];

/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The name, if there is one that is not empty.
pub(super) fn name_in(certificate: &[u8]) -> Option<&str> {
    let signed = Values(certificate).first(SEQUENCE)?.first(SEQUENCE)?;
    let mut fields = signed.filter(|(tag, _)| *tag != VERSION);
    // Before the subject come serial number, algorithm, issuer and validity.
    let subject = Values(fields.nth(4).filter(|(tag, _)| *tag == SEQUENCE)?.1);
    let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS).map(|(_, extensions)| Values(extensions));
    let name = extensions.and_then(alternative_name).or_else(|| common_name(subject))?;
    std::str::from_utf8(name).ok().filter(|name| !name.is_empty())
}

fn alternative_name(extensions: Values<'_>) -> Option<&[u8]> {
    let names = extensions.first(SEQUENCE)?.of(SEQUENCE).find_map(|mut extension| {
        // A flag may stand between the identifier and the content.
        (extension.next()? == (OBJECT_ID, ALTERNATIVE_NAMES)).then(|| extension.first(OCTET_STRING))?
    })?;
    names.first(SEQUENCE)?.find_map(|(tag, name)| [DNS_NAME, URI].contains(&tag).then_some(name))
}

fn common_name(subject: Values<'_>) -> Option<&[u8]> {
    subject.of(SET).flat_map(|names| names.of(SEQUENCE)).find_map(|mut name| {
        let is_common = name.next()? == (OBJECT_ID, COMMON_NAME);
        name.next().filter(|(tag, _)| is_common && STRINGS.contains(tag)).map(|(_, text)| text)
    })
}

/// DER values one after the other: each a tag and its content. Ends at the first truncated one.
#[derive(Clone, Copy)]
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The content of the first value with this tag.
    fn first(self, tag: u8) -> Option<Values<'a>> {
        self.of(tag).next()
    }

    /// The content of each value with this tag.
    fn of(self, tag: u8) -> impl Iterator<Item = Values<'a>> {
        self.filter(move |(found, _)| *found == tag).map(|(_, content)| Values(content))
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = self.0 else { return None };
        let (length, rest) = match length {
            0..=0x7f => (usize::from(*length), rest),
            // How many bytes the length itself takes. Four are more than any certificate needs.
            0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common: Option<&str>, others: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // Long enough that lengths take more than one byte.
        params.distinguished_name.push(DnType::OrganizationName, "o".repeat(64));
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.subject_alt_names = others;
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().expect("a name"))
    }

    fn uri(name: &str) -> SanType {
        SanType::URI(name.try_into().expect("a URI"))
    }

    #[test]
    fn the_first_dns_name_or_uri_wins_over_the_common_name() {
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        let spiffe = "spiffe://shop/billing";
        for (common, others, expected) in [
            (Some("billing"), vec![], Some("billing")),
            (Some("Rechnung für Übersee"), vec![], Some("Rechnung für Übersee")),
            (Some("billing"), vec![dns("a.example"), uri(spiffe)], Some("a.example")),
            (Some("billing"), vec![uri(spiffe), dns("a.example")], Some(spiffe)),
            (Some("billing"), vec![address.clone(), dns("a.example")], Some("a.example")),
            (Some("billing"), vec![address.clone()], Some("billing")),
            (None, vec![dns(&"long.".repeat(40))], Some("long.".repeat(40).as_str())),
            (None, vec![address], None),
            (None, vec![], None),
        ] {
            assert_eq!(name_in(&certificate(common, others.clone())), expected, "{common:?} {others:?}");
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_never_panics() {
        let whole = certificate(Some("billing"), vec![dns("a.example")]);
        for end in 0..whole.len() {
            assert_eq!(name_in(&whole[..end]), None, "{end}");
            for byte in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = whole.clone();
                damaged[end] = byte;
                let _ = name_in(&damaged);
            }
        }
    }
}
