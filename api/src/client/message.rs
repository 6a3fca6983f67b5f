// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 as this server writes it: a head, then a body of known length, in chunks, or up to the end (RFC 9112).

use std::io::{self, BufRead, Read};

use super::ClientError;

/// Longest line of a head or of a chunk's size.
const LINE_BYTES: u64 = 8192;
/// Most headers.
const HEADERS: usize = 64;

/// Status and headers of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(super) fn read(reader: &mut impl BufRead) -> Result<Self, ClientError> {
        let not = |what: &str| ClientError::NotUnderstood { what: what.to_owned() };
        let first = line(reader).map_err(ClientError::Broken)?;
        let status =
            first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| not("it is no HTTP"))?;
        let mut headers = Vec::new();
        loop {
            let line = line(reader).map_err(ClientError::Broken)?;
            if line.is_empty() {
                return Ok(Self { status, headers });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| not("a header without a colon"))?;
            if headers.len() == HEADERS {
                return Err(not("it has too many headers"));
            }
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }
}

/// A line without its end.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.by_ref().take(LINE_BYTES).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[derive(Debug)]
enum Rest {
    Bytes(u64),
    Chunk(u64),
    ToTheEnd,
}

/// The body of an answer.
#[derive(Debug)]
pub struct Body<R> {
    reader: R,
    rest: Rest,
    chunked: bool,
}

impl<R: BufRead> Body<R> {
    pub(super) fn new(reader: R, head: &Head) -> Self {
        let chunked = head.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        let length = head.header("content-length").and_then(|length| length.parse().ok());
        let rest = match (head.status, chunked, length) {
            (204 | 304, ..) => Rest::Bytes(0),
            (_, true, _) => Rest::Chunk(0),
            (_, false, Some(length)) => Rest::Bytes(length),
            (_, false, None) => Rest::ToTheEnd,
        };
        Self { reader, rest, chunked }
    }

    /// What it is read from.
    pub(super) const fn inner(&self) -> &R {
        &self.reader
    }

    fn next_chunk(&mut self) -> io::Result<u64> {
        let size = line(&mut self.reader)?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let bytes = u64::from_str_radix(digits, 16).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if bytes == 0 {
            // Trailers, which this server does not send, end with an empty line.
            while !line(&mut self.reader)?.is_empty() {}
        }
        Ok(bytes)
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Rest::Chunk(0) = self.rest {
            let bytes = self.next_chunk()?;
            self.rest = if bytes == 0 { Rest::Bytes(0) } else { Rest::Chunk(bytes) };
        }
        let most = match self.rest {
            Rest::Bytes(rest) | Rest::Chunk(rest) => rest,
            Rest::ToTheEnd => u64::MAX,
        };
        let read = self.reader.by_ref().take(most).read(buffer)?;
        match &mut self.rest {
            Rest::ToTheEnd => {}
            Rest::Bytes(rest) | Rest::Chunk(rest) if read == 0 && *rest > 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Rest::Bytes(rest) => *rest -= read as u64,
            Rest::Chunk(rest) => {
                *rest -= read as u64;
                if *rest == 0 && self.chunked {
                    line(&mut self.reader)?;
                }
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> (Head, io::Result<String>) {
        let mut reader = text.as_bytes();
        let head = Head::read(&mut reader).unwrap();
        let mut body = String::new();
        let read = Body::new(reader, &head).read_to_string(&mut body);
        (head, read.map(|_| body))
    }

    #[test]
    fn a_body_ends_where_it_says() {
        let (head, body) = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellorest");
        assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
        assert_eq!(body.unwrap(), "hello");
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\nrest";
        assert_eq!(whole(chunked).1.unwrap(), "hello!");
        assert_eq!(whole("HTTP/1.1 204 No Content\r\n\r\n").1.unwrap(), "");
        assert_eq!(whole("HTTP/1.0 200 OK\r\n\r\nto the end").1.unwrap(), "to the end");
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error() {
        assert!(whole("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello").1.is_err());
        assert!(whole("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel").1.is_err());
        assert!(whole("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n").1.is_err());
        for broken in ["", "HTTP/1.1 200 OK", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nx\r\n\r\n", "HTTP/1.1 x\r\n\r\n"] {
            assert!(Head::read(&mut broken.as_bytes()).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let answer = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".as_slice(), &bytes].concat();
            for text in [bytes.as_slice(), &answer] {
                let mut reader = text;
                if let Ok(head) = Head::read(&mut reader) {
                    let mut body = Vec::new();
                    let _ = Body::new(reader, &head).read_to_end(&mut body);
                }
            }
        }
    }
}
