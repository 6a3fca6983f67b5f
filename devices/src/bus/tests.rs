// SPDX-License-Identifier: Apache-2.0
//! The bus against devices that write down what reaches them.

use std::sync::Mutex;

use super::*;

/// Keeps every write and answers a read with the low byte of its offset.
#[derive(Default)]
struct Recorder(Mutex<Vec<(u64, Vec<u8>)>>);

impl Device for Recorder {
    fn read(&self, offset: u64, data: &mut [u8]) {
        for (register, byte) in ascending(offset).zip(data) {
            *byte = u8::try_from(register & 0x7F).unwrap();
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.0.lock().unwrap().push((offset, data.to_vec()));
    }
}

impl Recorder {
    fn written(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.lock().unwrap().clone()
    }
}

fn two_devices() -> (Bus, Arc<Recorder>, Arc<Recorder>) {
    let (low, high) = (Arc::new(Recorder::default()), Arc::new(Recorder::default()));
    let bus = BusBuilder::new().claim("high", 0x604, 4, high.clone()).unwrap();
    let bus = bus.claim("low", 0x600, 4, low.clone()).unwrap().build();
    (bus, low, high)
}

#[test]
fn an_overlap_names_both_devices() {
    let device = Arc::new(Recorder::default());
    for (first, len) in [(0x3F0, 9), (0x3FF, 1), (0x3F8, 8), (0x3FA, 2), (0x300, 0x200)] {
        let bus = BusBuilder::new().claim("COM1", 0x3F8, 8, device.clone()).unwrap();
        let error = bus.claim("other", first, len, device.clone()).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("COM1") && message.contains("other"), "{message}");
    }
    let bus = BusBuilder::new().claim("COM1", 0x3F8, 8, device.clone()).unwrap();
    assert!(bus.claim("next", 0x400, 1, device).is_ok());
}

#[test]
fn an_empty_or_endless_claim_is_refused() {
    let device = Arc::new(Recorder::default());
    let empty = BusBuilder::new().claim("none", 1, 0, device.clone()).err();
    assert_eq!(empty, Some(BusError::Empty { name: "none", first: 1 }));
    let endless = BusBuilder::new().claim("all", 2, u64::MAX, device.clone()).err();
    assert_eq!(endless, Some(BusError::PastEnd { name: "all", first: 2, len: u64::MAX }));
    assert!(BusBuilder::new().claim("top", u64::MAX, 1, device).is_ok());
}

#[test]
fn a_device_sees_offsets_of_its_window() {
    let device = Arc::new(Recorder::default());
    let bus = BusBuilder::new().claim_window("i8042 command", 0x64, 1, 4, device.clone()).unwrap().build();
    bus.write(0x64, Width::Byte, &[0xFE]);
    assert_eq!(device.written(), [(4, vec![0xFE])]);
}

#[test]
fn a_string_goes_to_one_offset_element_by_element() {
    let (bus, low, _) = two_devices();
    bus.write(0x600, Width::Word, &[1, 2, 3, 4]);
    assert_eq!(low.written(), [(0, vec![1, 2]), (0, vec![3, 4])]);
    let mut data = [0; 4];
    bus.read(0x602, Width::Byte, &mut data);
    assert_eq!(data, [2; 4]);
}

#[test]
fn an_element_across_two_devices_is_split_into_bytes() {
    let (bus, low, high) = two_devices();
    bus.write(0x602, Width::Dword, &[1, 2, 3, 4]);
    assert_eq!(low.written(), [(2, vec![1]), (3, vec![2])]);
    assert_eq!(high.written(), [(0, vec![3]), (1, vec![4])]);
    assert!(bus.unclaimed().is_empty());
}

#[test]
fn unclaimed_bytes_float_high_and_are_counted() {
    let (bus, _, _) = two_devices();
    let mut data = [0; 4];
    bus.read(0x606, Width::Dword, &mut data);
    assert_eq!(data, [2, 3, 0xFF, 0xFF]);
    bus.read(0xCFC, Width::Word, &mut data);
    assert_eq!(data, [0xFF; 4]);
    bus.write(0x80, Width::Byte, &[0]);
    let count = |address, reads, writes| UnclaimedCount { address: Some(address), reads, writes };
    assert_eq!(bus.unclaimed(), [count(0x80, 0, 1), count(0x608, 1, 0), count(0x609, 1, 0), count(0xCFC, 2, 0)]);
}

#[test]
fn an_access_at_the_last_address_does_not_wrap() {
    let (bus, low, _) = two_devices();
    bus.write(u64::MAX, Width::Qword, &[0; 8]);
    let mut data = [0; 8];
    bus.read(u64::MAX - 1, Width::Qword, &mut data);
    assert_eq!(data, [0xFF; 8]);
    assert!(low.written().is_empty());
}
