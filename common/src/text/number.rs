//! Numbers as text.

use std::fmt::Write;

use arrow::datatypes::i256;

/// Appends an integer.
pub(super) fn write_int(value: i64, out: &mut String) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push('-');
    }
    out.extend(digits[start..].iter().map(|d| char::from(*d)));
}

/// Appends a double precision. Above 0 `extra_digits`, with the fewest digits that read back as the same number.
pub fn write_float8(value: f64, extra_digits: i32, out: &mut String) {
    write_float(value.is_finite().then(|| float_digits(value, 15, extra_digits)), value, 15, out);
}

/// Appends a real.
pub fn write_float4(value: f32, extra_digits: i32, out: &mut String) {
    let digits = value.is_finite().then(|| {
        if extra_digits > 0 { format!("{:e}", value.abs()) } else { float_digits(value.into(), 6, extra_digits) }
    });
    write_float(digits, value.into(), 6, out);
}

/// The absolute value in scientific notation, `1.25e-7`.
fn float_digits(value: f64, digits: i32, extra_digits: i32) -> String {
    match extra_digits {
        1.. => format!("{:e}", value.abs()),
        _ => format!("{:.*e}", (digits + extra_digits).max(1) as usize - 1, value.abs()),
    }
}

/// Appends the digits as C's `%g` would lay them out: with an exponent below 1e-4 and from 1e`precision`.
fn write_float(scientific: Option<String>, value: f64, precision: i32, out: &mut String) {
    let Some(scientific) = scientific else {
        return out.push_str(match value {
            _ if value.is_nan() => "NaN",
            _ if value > 0.0 => "Infinity",
            _ => "-Infinity",
        });
    };
    if value.is_sign_negative() {
        out.push('-');
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        significant => significant,
    };
    if (-4..precision).contains(&exponent) {
        return write_fixed(digits, exponent, out);
    }
    out.push_str(&digits[..1]);
    if digits.len() > 1 {
        out.push('.');
        out.push_str(&digits[1..]);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "e{sign}{:02}", exponent.abs());
}

/// Appends `d.ddd * 10^exponent` without an exponent.
fn write_fixed(digits: &str, exponent: i32, out: &mut String) {
    if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-exponent - 1) as usize));
        return out.push_str(digits);
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(digits);
        out.extend(std::iter::repeat_n('0', whole - digits.len()));
    } else {
        out.push_str(&digits[..whole]);
        out.push('.');
        out.push_str(&digits[whole..]);
    }
}

/// Appends a numeric, `unscaled / 10^scale`, with exactly `declared` digits after the point (rounded half away from
/// zero), or without zeros at the end.
pub fn write_decimal(unscaled: i128, scale: i8, declared: Option<i8>, out: &mut String) {
    let digits = unscaled.unsigned_abs().to_string();
    write_digits(unscaled < 0, &digits, scale, declared, out);
}

/// Appends a numeric of 256 bits.
pub(super) fn write_decimal256(unscaled: i256, scale: i8, declared: Option<i8>, out: &mut String) {
    match unscaled.to_i128() {
        Some(narrow) => write_decimal(narrow, scale, declared, out),
        None => {
            let digits = unscaled.to_string();
            let (negative, digits) = match digits.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, digits.as_str()),
            };
            write_digits(negative, digits, scale, declared, out);
        }
    }
}

/// Appends the digits with the point `scale` digits from the end.
fn write_digits(negative: bool, digits: &str, scale: i8, declared: Option<i8>, out: &mut String) {
    let scale = i32::from(scale);
    let digits = match usize::try_from(-scale) {
        Ok(zeros) if digits != "0" => format!("{digits}{}", "0".repeat(zeros)),
        _ => digits.to_owned(),
    };
    let places = scale.max(0) as usize;
    let (digits, places) = match declared {
        Some(declared) if (declared.max(0) as usize) < places => round(&digits, places, declared.max(0) as usize),
        _ => (digits, places),
    };
    let digits = if digits.len() <= places { format!("{digits:0>width$}", width = places + 1) } else { digits };
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let fraction = if declared.is_none() { fraction.trim_end_matches('0') } else { fraction };
    let zeros = (declared.unwrap_or(0).max(0) as usize).saturating_sub(fraction.len());
    if negative && (whole.bytes().chain(fraction.bytes()).any(|d| d != b'0')) {
        out.push('-');
    }
    out.push_str(whole);
    if !fraction.is_empty() || zeros > 0 {
        out.push('.');
        out.push_str(fraction);
        out.extend(std::iter::repeat_n('0', zeros));
    }
}

/// Digits with `places` after the point, rounded to `to` of them.
fn round(digits: &str, places: usize, to: usize) -> (String, usize) {
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (kept, dropped) = digits.split_at(digits.len() - (places - to));
    let mut kept: Vec<u8> = kept.bytes().collect();
    if dropped.as_bytes().first().is_some_and(|d| *d >= b'5') {
        let nines = kept.iter().rev().take_while(|d| **d == b'9').count();
        let end = kept.len() - nines;
        kept[end..].fill(b'0');
        match end.checked_sub(1) {
            Some(last) => kept[last] += 1,
            None => kept.insert(0, b'1'),
        }
    }
    (kept.into_iter().map(char::from).collect(), to)
}
