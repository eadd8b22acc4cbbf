// SPDX-License-Identifier: GPL-2.0

//! The line protocol between the lab and `lab-init`.
//!
//! Each message is one line of space-separated words, each word escaped so
//! that it contains neither spaces nor control characters. The first word is
//! the verb. Both sides include this file.
//!
//! To the guest: `run ID TIMEOUT NENV K=V… ARG…`, `shell ID ROWS COLS ARG…`,
//! `stop`, `release NAME 0|1`, `poweroff`.
//! From the guest: `hello RELEASE`, `out LINE`, `err LINE`,
//! `exit ID STATUS WHY`, `barrier NAME`.

/// Prefix of every line from the guest, which tells it from stray output on
/// the same serial port.
pub const PREFIX: &str = "@rsmc ";

/// Escapes one word.
pub fn escape(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 2);
    if word.is_empty() {
        return "%_".into();
    }
    for c in word.chars() {
        match c {
            '%' | ' ' => out.push_str(&format!("%{:02x}", c as u32)),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                out.push_str(&format!("%{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out
}

/// Undoes [`escape`]; malformed escapes are kept as they are.
pub fn unescape(word: &str) -> String {
    if word == "%_" {
        return String::new();
    }
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let code = rest
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            .filter(u8::is_ascii);
        match code {
            Some(code) => {
                out.push(code as char);
                rest = &rest[2..];
            }
            None => out.push('%'),
        }
    }
    out.push_str(rest);
    out
}

/// Joins words into a line without its newline.
pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<String> = words.iter().map(|word| escape(word.as_ref())).collect();
    words.join(" ")
}

/// Splits a line into words.
pub fn split(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(unescape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive() {
        for words in [
            vec!["out", "", "a b", "100%", "tab\there", "ünïcode", "%20"],
            vec![""],
        ] {
            assert_eq!(split(&join(&words)), words);
        }
    }

    #[test]
    fn malformed_escapes_are_kept() {
        assert_eq!(unescape("50%"), "50%");
        assert_eq!(unescape("%zz"), "%zz");
        assert_eq!(unescape("%f"), "%f");
    }
}
