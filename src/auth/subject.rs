//! The subject of a certificate as text, such that no two subjects have the same.
//!
//! Pure. Follows RFC 4514.

use x509_parser::oid_registry::Oid;
use x509_parser::prelude::X509Name;

/// Encodes by RFC 4514: the most specific part first, parts between commas, and everything escaped
/// that could be read as more.
pub(super) fn text(subject: &X509Name<'_>) -> String {
    let parts: Vec<_> = subject.iter_rdn().collect();
    let parts = parts.iter().rev().map(|part| {
        let pairs = part.iter().map(|pair| {
            let mut text = short(pair.attr_type());
            text.push('=');
            match pair.as_str() {
                Ok(value) => escape(value, &mut text),
                // A value that is no text: its bytes.
                Err(_) => {
                    text.push('#');
                    pair.as_slice().iter().for_each(|byte| push_hex(*byte, &mut text));
                }
            }
            text
        });
        pairs.collect::<Vec<_>>().join("+")
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Returns the name of RFC 4514 §3; the number for other attributes.
fn short(kind: &Oid<'_>) -> String {
    let number = kind.to_id_string();
    let name = match number.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        _ => return number,
    };
    name.to_owned()
}

fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, letter) in value.chars().enumerate() {
        let at_edge = (letter == ' ' && (at == 0 || at == last)) || (letter == '#' && at == 0);
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => {
                text.push('\\');
                text.push(letter);
            }
            _ if at_edge => {
                text.push('\\');
                text.push(letter);
            }
            _ if letter.is_control() => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    text.push('\\');
                    push_hex(byte, text);
                }
            }
            _ => text.push(letter),
        }
    }
}

fn push_hex(byte: u8, text: &mut String) {
    text.extend([byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16)));
}
