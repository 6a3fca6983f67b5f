// SPDX-License-Identifier: Apache-2.0
//! What was typed, out of the bytes of a terminal (ECMA-48, 5.4: `ESC [` begins a control sequence). Pure.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Backspace,
    Escape,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C, which a raw terminal makes no signal of.
    Interrupt,
}

/// The keys of one reading; sequences that are not known are left out.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            0x1b => match tail {
                [b'[' | b'O', sequence @ ..] => {
                    let length = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
                    let (sequence, tail) = sequence.split_at(length.map_or(sequence.len(), |at| at + 1));
                    keys.extend(known(sequence));
                    rest = tail;
                }
                _ => keys.push(Key::Escape),
            },
            0x03 => keys.push(Key::Interrupt),
            b'\r' | b'\n' => keys.push(Key::Enter),
            0x08 | 0x7f => keys.push(Key::Backspace),
            b' '..=b'~' => keys.push(Key::Char(char::from(*first))),
            _ => {}
        }
    }
    keys
}

fn known(sequence: &[u8]) -> Option<Key> {
    match sequence {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"H" | b"1~" => Some(Key::Home),
        b"F" | b"4~" => Some(Key::End),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_are_one_key_each() {
        assert_eq!(keys(b"s\x1b[A\x1b[6~\x1bOBq"), [Key::Char('s'), Key::Up, Key::PageDown, Key::Down, Key::Char('q')]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b[1;5C\x7f\r\x03"), [Key::Backspace, Key::Enter, Key::Interrupt]);
        assert!(keys(b"\x1b[99").is_empty(), "a sequence that breaks off");
    }

    proptest! {
        #[test]
        fn any_bytes_are_keys_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(keys(&bytes).len() <= bytes.len());
        }
    }
}
