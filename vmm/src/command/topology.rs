// SPDX-License-Identifier: Apache-2.0
//! `vmm topology`: the shape a machine would have.
