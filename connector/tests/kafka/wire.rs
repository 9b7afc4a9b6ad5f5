//! The primitive types of Kafka's protocol, in versions before the compact ones.

use std::io::{self, Read, Write};
use std::net::TcpStream;

pub struct Request {
    pub api: i16,
    pub version: i16,
    pub correlation: i32,
    body: Vec<u8>,
    at: usize,
}

impl Request {
    pub fn read(stream: &mut TcpStream) -> io::Result<Request> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut body = vec![0; i32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body)?;
        let mut request = Request { api: 0, version: 0, correlation: 0, body, at: 0 };
        (request.api, request.version, request.correlation) = (request.i16(), request.i16(), request.i32());
        request.string();
        Ok(request)
    }

    fn take(&mut self, length: usize) -> &[u8] {
        self.at += length;
        &self.body[self.at - length..self.at]
    }

    pub fn i8(&mut self) -> i8 {
        self.take(1)[0] as i8
    }

    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    /// NULL is empty.
    pub fn string(&mut self) -> String {
        let length = self.i16().max(0) as usize;
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let length = self.i32().max(0) as usize;
        self.take(length).to_vec()
    }

    pub fn array<T>(&mut self, mut item: impl FnMut(&mut Request) -> T) -> Vec<T> {
        (0..self.i32()).map(|_| item(self)).collect()
    }
}

#[derive(Default)]
pub struct Response {
    body: Vec<u8>,
}

impl Response {
    pub fn i8(&mut self, value: i8) -> &mut Response {
        self.raw(&value.to_be_bytes())
    }

    pub fn i16(&mut self, value: i16) -> &mut Response {
        self.raw(&value.to_be_bytes())
    }

    pub fn i32(&mut self, value: i32) -> &mut Response {
        self.raw(&value.to_be_bytes())
    }

    pub fn i64(&mut self, value: i64) -> &mut Response {
        self.raw(&value.to_be_bytes())
    }

    pub fn string(&mut self, value: &str) -> &mut Response {
        self.i16(value.len() as i16).raw(value.as_bytes())
    }

    pub fn null(&mut self) -> &mut Response {
        self.i16(-1)
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Response {
        self.i32(value.len() as i32).raw(value)
    }

    pub fn array<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Response, &T)) -> &mut Response {
        self.i32(items.len() as i32);
        items.iter().for_each(|item| write(self, item));
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Response {
        self.body.extend_from_slice(bytes);
        self
    }

    pub fn send(&self, correlation: i32, stream: &mut TcpStream) -> io::Result<()> {
        let mut frame = (self.body.len() as i32 + 4).to_be_bytes().to_vec();
        frame.extend(correlation.to_be_bytes());
        frame.extend(&self.body);
        stream.write_all(&frame)
    }
}

/// A batch with the one record that ends a transaction.
pub fn marker(producer: (i64, i16), committed: bool) -> Vec<u8> {
    // Length, attributes, deltas of time and offset; key: version and kind; value: version and coordinator's epoch.
    let record = [16 << 1, 0, 0, 0, 4 << 1, 0, 0, 0, u8::from(committed), 6 << 1, 0, 0, 0, 0, 0, 0, 0];
    const TRANSACTIONAL_AND_CONTROL: i16 = 0x30;
    let mut checked = Response::default();
    checked.i16(TRANSACTIONAL_AND_CONTROL).i32(0).i64(1).i64(1).i64(producer.0).i16(producer.1).i32(-1).i32(1);
    checked.raw(&record);
    let mut batch = Response::default();
    batch.i64(0).i32(9 + checked.body.len() as i32).i32(0).i8(2).i32(crc32c(&checked.body) as i32).raw(&checked.body);
    batch.body
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    };
    !bytes.iter().fold(!0, step)
}
