// SPDX-License-Identifier: Apache-2.0
//! ebizzy's options, as its public description has them. Pure.

/// How it is used.
pub(crate) const USAGE: &str = "\
Usage: ebizzy [-m | -M] [-n CHUNKS] [-s BYTES] [-S SECONDS] [-t THREADS] [-v]
  -m  always use mmap for a copy    -M  never
  -n  chunks of memory [10]         -s  size of a chunk [524288]
  -S  seconds to run [10]           -t  threads [twice the CPUs]
  -v  say more, on standard error";

/// Where a copy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mmap {
    /// As the C library's allocator likes.
    Allocator,
    /// Always a mapping of its own.
    Always,
    /// Never.
    Never,
}

/// What it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mmap: Mmap,
    pub(crate) chunks: u32,
    pub(crate) chunk_bytes: u32,
    pub(crate) seconds: u32,
    pub(crate) threads: u32,
    pub(crate) verbose: bool,
}

impl Options {
    /// Reads arguments; the value of an option may be attached or follow.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>, cpus: u32) -> Result<Self, String> {
        let mut options = Self {
            mmap: Mmap::Allocator,
            chunks: 10,
            chunk_bytes: 512 << 10,
            seconds: 10,
            threads: cpus.saturating_mul(2).clamp(1, 4096),
            verbose: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (option, attached) = argument.split_at_checked(2).unwrap_or((&argument, ""));
            let flag = |mmap: Mmap, now: Mmap| match now {
                Mmap::Allocator => Ok(mmap),
                Mmap::Always | Mmap::Never => Err("-m and -M exclude each other and are given once".to_owned()),
            };
            match option {
                "-m" if attached.is_empty() => options.mmap = flag(Mmap::Always, options.mmap)?,
                "-M" if attached.is_empty() => options.mmap = flag(Mmap::Never, options.mmap)?,
                "-v" if attached.is_empty() => options.verbose = true,
                "-n" | "-s" | "-S" | "-t" => {
                    let value = if attached.is_empty() { arguments.next() } else { Some(attached.to_owned()) };
                    let value = value.ok_or_else(|| format!("{option} wants a number"))?;
                    options.set(option, &value)?;
                }
                _ => return Err(format!("there is no option {argument}")),
            }
        }
        Ok(options)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let (place, least, most) = match option {
            "-n" => (&mut self.chunks, 1, 100_000),
            "-s" => (&mut self.chunk_bytes, 64, 1 << 30),
            "-S" => (&mut self.seconds, 1, 86_400),
            _ => (&mut self.threads, 1, 4096),
        };
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        *place = number.ok_or_else(|| format!("{option} {value}: give a whole number from {least} to {most}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(text.split_ascii_whitespace().map(str::to_owned), 4)
    }

    #[test]
    fn options_are_those_of_the_description() {
        let plain = parse("").unwrap();
        assert_eq!((plain.threads, plain.chunks, plain.chunk_bytes, plain.seconds), (8, 10, 524_288, 10));
        let all = parse("-m -n 3 -s4096 -S 2 -t16 -v").unwrap();
        let expected =
            Options { mmap: Mmap::Always, chunks: 3, chunk_bytes: 4096, seconds: 2, threads: 16, verbose: true };
        assert_eq!(all, expected);
        assert_eq!(parse("-M").unwrap().mmap, Mmap::Never);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, part) in [
            ("-m -M", "exclude each other"),
            ("-t", "-t wants a number"),
            ("-t 0", "from 1 to 4096"),
            ("-S x", "-S x: give"),
            ("-s 1", "from 64"),
            ("-z", "no option -z"),
            ("é", "no option é"),
            ("7", "no option 7"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
