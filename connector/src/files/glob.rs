//! Patterns for paths.

/// A pattern: `*`, `?`, `**`, `[a-z]`, `[!a-z]`.
#[derive(Clone, Debug)]
pub struct Glob {
    tokens: Vec<Token>,
    /// Matched against the whole path, not just the name of the file.
    whole_path: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Char(char),
    /// `?`
    Any,
    /// `*`
    Star,
    /// `**`
    StarStar,
    /// `**/`: no directory, or some
    Directories,
    /// `[…]`
    Set(Set),
}

#[derive(Clone, Debug, PartialEq)]
struct Set {
    ranges: Vec<(char, char)>,
    negated: bool,
}

impl Set {
    fn contains(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.negated
    }
}

impl Glob {
    /// Reads a pattern. With a `/` in it, it is about the whole path.
    pub fn parse(pattern: &str) -> Option<Glob> {
        let mut tokens = vec![];
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' if chars.next_if_eq(&'*').is_some() => {
                    if chars.next_if_eq(&'/').is_some() {
                        Token::Directories
                    } else {
                        Token::StarStar
                    }
                }
                '*' => Token::Star,
                '?' => Token::Any,
                '[' => set(&mut chars)?,
                c => Token::Char(c),
            });
        }
        Some(Glob { tokens, whole_path: pattern.contains('/') })
    }

    /// The same pattern, matched against the whole path.
    pub fn anchored(mut self) -> Glob {
        self.whole_path = true;
        self
    }

    /// Whether a path, with `/` between its parts, is one of the pattern.
    pub fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let text = if self.whole_path { path } else { name };
        let mut states = vec![false; self.tokens.len() + 1];
        self.enter(0, &mut states);
        for c in text.chars() {
            let mut next = vec![false; states.len()];
            for (i, token) in self.tokens.iter().enumerate().filter(|(i, _)| states[*i]) {
                self.step(i, token, c, &mut next);
            }
            states = next;
        }
        states[self.tokens.len()]
    }

    /// Token `i` is next; so is the one after it when it may match nothing.
    fn enter(&self, i: usize, states: &mut [bool]) {
        states[i] = true;
        if matches!(self.tokens.get(i), Some(Token::Star | Token::StarStar | Token::Directories)) {
            self.enter(i + 1, states);
        }
    }

    /// Where token `i` leads with one more character.
    fn step(&self, i: usize, token: &Token, c: char, next: &mut [bool]) {
        match token {
            Token::Char(expected) if *expected == c => self.enter(i + 1, next),
            Token::Any if c != '/' => self.enter(i + 1, next),
            Token::Set(set) if c != '/' && set.contains(c) => self.enter(i + 1, next),
            Token::Star if c != '/' => self.enter(i, next),
            Token::StarStar => self.enter(i, next),
            Token::Directories => {
                next[i] = true;
                if c == '/' {
                    self.enter(i + 1, next);
                }
            }
            _ => {}
        }
    }
}

/// Whether a text has wildcards.
pub fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

fn set(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Token> {
    let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut ranges = vec![];
    loop {
        let low = chars.next()?;
        if low == ']' && !ranges.is_empty() {
            return Some(Token::Set(Set { ranges, negated }));
        }
        let mut ahead = chars.clone();
        let high = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                *chars = ahead;
                high
            }
            _ => low,
        };
        ranges.push((low, high));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn patterns() {
        let cases = [
            ("*", "a.csv", true),
            ("*", "d/a.csv", true),
            ("*.csv", "d/e/a.csv", true),
            ("*.csv", "a.csv.gz", false),
            ("a?c*", "abc", true),
            ("a?c*", "ac", false),
            ("d/*.csv", "d/a.csv", true),
            ("d/*.csv", "d/e/a.csv", false),
            ("d/**/*.csv", "d/a.csv", true),
            ("d/**/*.csv", "d/e/f/a.csv", true),
            ("d/**/*.csv", "de/a.csv", false),
            ("d/**", "d/e/f", true),
            ("**/x", "x", true),
            ("**/x", "yx", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]a]x", "]x", true),
            ("[a-]x", "-x", true),
            ("part-*-of-*", "part-1-of-2", true),
            ("", "a", false),
        ];
        for (pattern, path, matches) in cases {
            assert_eq!(Glob::parse(pattern).unwrap().matches(path), matches, "{pattern} {path}");
        }
        assert!(Glob::parse("[a").is_none());
        assert!(!Glob::parse("*.csv").unwrap().anchored().matches("d/a.csv"));
        let slow = Glob::parse(&"*a".repeat(50)).unwrap();
        assert!(!slow.matches(&"a".repeat(49)));
    }
}
