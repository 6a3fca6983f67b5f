// SPDX-License-Identifier: Apache-2.0
//! What kind of kernel image a file is, by its first bytes and never by its name.

use std::fmt;

/// What the first bytes of a file say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// ELF, of whatever class and machine.
    Elf,
    /// Linux bzImage: `HdrS` in the setup header (Documentation/arch/x86/boot.rst).
    BzImage,
    /// Something that is no kernel for this monitor.
    Foreign(Foreign),
}

/// Things that people hand in instead of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// gzip stream.
    Gzip,
    /// xz stream.
    Xz,
    /// zstd stream.
    Zstd,
    /// bzip2 stream.
    Bzip2,
    /// LZ4 stream, of the frame format or of the older one that kernels use.
    Lz4,
    /// arm64 Image (Documentation/arch/arm64/booting.rst).
    Arm64Image,
    /// 32-bit ARM zImage (arch/arm/boot/compressed/head.S).
    ArmZImage,
    /// A kernel that only EFI firmware unpacks (drivers/firmware/efi/libstub/zboot-header.S).
    EfiZboot,
    /// cpio archive, as an initrd is.
    Cpio,
    /// Text that starts with `#!`.
    Script,
    /// Nothing that is known here.
    Unknown,
}

/// How many bytes of a file [`identify`] looks at, at most.
pub const MAGIC_BYTES: usize = 0x210;

/// Tells the kind of an image from its first [`MAGIC_BYTES`] bytes (fewer, when the file is shorter).
#[must_use]
pub fn identify(head: &[u8]) -> ImageKind {
    /// Offset of `header` in a bzImage's setup header.
    const HDRS: usize = 0x202;
    /// Offset of the magic of an arm64 Image.
    const ARM64: usize = 56;
    /// Offset of the magic of an ARM zImage.
    const ARM: usize = 0x24;
    /// Offset of the magic of an EFI zboot image.
    const ZBOOT: usize = 4;
    let at = |offset: usize, magic: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if at(0, b"\x7FELF") {
        return ImageKind::Elf;
    }
    if at(HDRS, b"HdrS") {
        return ImageKind::BzImage;
    }
    let foreign = [
        (0, &b"\x1F\x8B"[..], Foreign::Gzip),
        (0, b"\xFD7zXZ\0", Foreign::Xz),
        (0, b"\x28\xB5\x2F\xFD", Foreign::Zstd),
        (0, b"BZh", Foreign::Bzip2),
        (0, b"\x04\x22\x4D\x18", Foreign::Lz4),
        (0, b"\x02\x21\x4C\x18", Foreign::Lz4),
        (ARM64, b"ARMd", Foreign::Arm64Image),
        (ARM, b"\x18\x28\x6F\x01", Foreign::ArmZImage),
        (ZBOOT, b"zimg", Foreign::EfiZboot),
        (0, b"070701", Foreign::Cpio),
        (0, b"#!", Foreign::Script),
    ];
    let kind = foreign.iter().find(|(offset, magic, _)| at(*offset, magic)).map(|(_, _, kind)| *kind);
    ImageKind::Foreign(kind.unwrap_or(Foreign::Unknown))
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "a gzip stream; unpack it first",
            Self::Xz => "an xz stream; unpack it first",
            Self::Zstd => "a zstd stream; unpack it first",
            Self::Bzip2 => "a bzip2 stream; unpack it first",
            Self::Lz4 => "an LZ4 stream; unpack it first",
            Self::ArmZImage => "a 32-bit ARM kernel; this monitor runs x86-64 guests",
            Self::EfiZboot => "a kernel that EFI firmware unpacks (zboot), as other architectures have",
            Self::Arm64Image => "an arm64 kernel; this monitor runs x86-64 guests",
            Self::Cpio => "a cpio archive, as an initrd is; did --kernel and --initrd change places?",
            Self::Script => "a script",
            Self::Unknown => "no kernel image that is known here",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_by_their_magic() {
        let mut bzimage = vec![0; MAGIC_BYTES];
        bzimage[0x202..0x206].copy_from_slice(b"HdrS");
        let mut arm = vec![0; 64];
        arm[56..60].copy_from_slice(b"ARMd");
        let mut zimage = vec![0; 64];
        zimage[0x24..0x28].copy_from_slice(&0x016F_2818u32.to_le_bytes());
        for (head, kind) in [
            (&b"\x7FELF\x02"[..], ImageKind::Elf),
            (&bzimage, ImageKind::BzImage),
            (&arm, ImageKind::Foreign(Foreign::Arm64Image)),
            (&zimage, ImageKind::Foreign(Foreign::ArmZImage)),
            (b"MZ\0\0zimg", ImageKind::Foreign(Foreign::EfiZboot)),
            (b"BZh91AY", ImageKind::Foreign(Foreign::Bzip2)),
            (b"\x02\x21\x4C\x18", ImageKind::Foreign(Foreign::Lz4)),
            (b"\x1F\x8B\x08", ImageKind::Foreign(Foreign::Gzip)),
            (b"070701", ImageKind::Foreign(Foreign::Cpio)),
            (b"", ImageKind::Foreign(Foreign::Unknown)),
            (b"\x7FEL", ImageKind::Foreign(Foreign::Unknown)),
        ] {
            assert_eq!(identify(head), kind, "{head:02x?}");
        }
    }
}
