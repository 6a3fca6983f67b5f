// SPDX-License-Identifier: Apache-2.0
//! From a kernel image to a guest that can start: find out what the image is, check it, load it, write what it expects.

pub mod elf;
pub mod image;
pub mod pvh;
