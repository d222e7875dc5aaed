//! Lists of what the library is told: keys and values. A list owns all that its values point to.

use super::ffi::{
    self, BOOL, BYTES, Bytes, DATA_ARRAY, Data, DataArray, INFO, Info, RANK, STRING, UINT16, UINT32, Value,
};
use super::published::Found;
use std::ffi::CString;

/// See above.
#[derive(Default)]
pub struct Infos {
    list: Vec<Info>,
    texts: Vec<CString>,
    arrays: Vec<(Box<DataArray>, Infos)>,
}

impl Infos {
    fn add(&mut self, key: &str, kind: u16, fill: impl FnOnce(&mut Data)) {
        let mut info = Info { key: [0; 512], flags: 0, value: Value { kind, data: Data { room: [0; 3] } } };
        let length = key.len().min(info.key.len() - 1);
        info.key[..length].copy_from_slice(&key.as_bytes()[..length]);
        fill(&mut info.value.data);
        self.list.push(info);
    }

    /// Yes or no.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.add(key, BOOL, |data| data.flag = value);
    }

    /// A number of 16 bits.
    pub fn small(&mut self, key: &str, value: u16) {
        self.add(key, UINT16, |data| data.uint16 = value);
    }

    /// One of 32.
    pub fn number(&mut self, key: &str, value: u32) {
        self.add(key, UINT32, |data| data.uint32 = value);
    }

    /// A rank.
    pub fn rank(&mut self, key: &str, value: u32) {
        self.add(key, RANK, |data| data.uint32 = value);
    }

    /// A text. What is behind a zero byte is cut off.
    pub fn text(&mut self, key: &str, value: &str) {
        let value = value.split('\0').next().unwrap_or_default();
        let text = CString::new(value).unwrap_or_default();
        let at = text.as_ptr().cast_mut();
        self.texts.push(text);
        self.add(key, STRING, |data| data.string = at);
    }

    /// A list in the list.
    pub fn list(&mut self, key: &str, mut value: Infos) {
        let (array, size) = value.raw();
        let mut array = Box::new(DataArray { kind: INFO, size, array: array.cast() });
        let at: *mut DataArray = &mut *array;
        self.arrays.push((array, value));
        self.add(key, DATA_ARRAY, |data| data.array = at);
    }

    /// Places for values that the library makes. The caller gives them back to it.
    pub fn empty(&mut self, key: &str) -> usize {
        self.add(key, 0, |_| {});
        self.list.len() - 1
    }

    /// The value at such a place.
    pub fn value(&mut self, at: usize) -> *mut Value {
        &mut self.list[at].value
    }

    /// As the library wants it; for as long as the list lives and is not changed.
    pub fn raw(&mut self) -> (*mut Info, usize) {
        (self.list.as_mut_ptr(), self.list.len())
    }
}

/// What ranks find, of a space. Like a list it owns all that its values point to.
pub struct Published {
    list: Vec<ffi::Found>,
    _texts: Vec<CString>,
    _bytes: Vec<Vec<u8>>,
}

impl Published {
    /// Of these. What is behind a zero byte of a text is cut off.
    pub fn new(space: &str, found: Vec<(String, Found)>) -> Published {
        let (mut list, mut texts, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for (name, Found { rank, text, bytes }) in found {
            let mut key = [0; 512];
            let length = name.len().min(key.len() - 1);
            key[..length].copy_from_slice(&name.as_bytes()[..length]);
            let mut data = Data { room: [0; 3] };
            let kind = match bytes {
                Some(mut bytes) => {
                    data.bytes = Bytes { at: bytes.as_mut_ptr().cast(), size: bytes.len() };
                    all.push(bytes);
                    BYTES
                }
                None => {
                    let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
                    data.string = text.as_ptr().cast_mut();
                    texts.push(text);
                    STRING
                }
            };
            list.push(ffi::Found { publisher: proc(space, rank), key, value: Value { kind, data } });
        }
        Published { list, _texts: texts, _bytes: all }
    }

    /// As the library wants it; for as long as this lives.
    pub fn raw(&mut self) -> (*mut ffi::Found, usize) {
        (self.list.as_mut_ptr(), self.list.len())
    }
}

/// A rank of a space. A name that is too long is cut off.
pub fn proc(space: &str, rank: u32) -> ffi::Proc {
    let mut proc = ffi::Proc { space: [0; ffi::MOST_SPACE + 1], rank };
    let length = space.len().min(ffi::MOST_SPACE);
    proc.space[..length].copy_from_slice(&space.as_bytes()[..length]);
    proc
}
