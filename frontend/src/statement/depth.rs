//! Keeps trees from growing deeper than the stack bears.
//!
//! What nests in parentheses is bounded by the parser. What it reads in loops is not: `a + b + c + …`, `x::int::int::…`,
//! `SELECT … UNION SELECT … UNION …` grow one level with every operator, and planning goes down those levels one by one.
//! So operators in a row are counted before anything is parsed. Chains of AND and OR may be longer, as programs write
//! them; their order does not matter, so [`balance`] makes shallow trees of them.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};

use crate::error::{Result, SqlError, SqlState};

/// Operators in a row, other than AND and OR; also joins and set operations in a row.
const OPERATORS_MAX: usize = 250;
/// ANDs and ORs in a row.
const LOGICAL_MAX: usize = 2_000;

/// What was counted since a separator, at one level of parentheses.
#[derive(Default)]
struct Level {
    operators: usize,
    logical: usize,
    relations: usize,
}

/// Refuses text whose operators would make too deep a tree.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![Level::default()];
    for token in tokens {
        let nested = levels.len() > 1;
        let Some(level) = levels.last_mut() else { return Ok(()) };
        match &token.token {
            Token::Whitespace(_) => {}
            Token::LParen => levels.push(Level::default()),
            Token::LBracket => {
                level.operators += 1;
                check_level(level, token.span.start)?;
                levels.push(Level::default());
            }
            // More closing ones than opening ones are for the parser to refuse.
            Token::RParen | Token::RBracket if nested => drop(levels.pop()),
            Token::Comma => (level.operators, level.logical) = (0, 0),
            Token::SemiColon => *level = Level::default(),
            Token::Word(word) => count_word(word, level),
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Period
            | Token::Placeholder(_)
            | Token::RParen
            | Token::RBracket
            | Token::EOF => {}
            _ => level.operators += 1,
        }
        if let Some(level) = levels.last() {
            check_level(level, token.span.start)?;
        }
    }
    Ok(())
}

fn count_word(word: &Word, level: &mut Level) {
    if word.quote_style.is_some() {
        return;
    }
    match word.value.to_ascii_lowercase().as_str() {
        "and" | "or" => {
            level.logical += 1;
            level.operators = 0;
        }
        "union" | "intersect" | "except" | "join" => {
            level.relations += 1;
            (level.operators, level.logical) = (0, 0);
        }
        "is" | "isnull" | "notnull" | "at" | "collate" | "like" | "ilike" | "similar" | "between" | "in" | "not" => {
            level.operators += 1;
        }
        "select" | "from" | "where" | "having" | "by" | "on" | "when" | "then" | "else" | "end" | "as" | "values" => {
            (level.operators, level.logical) = (0, 0);
        }
        _ => {}
    }
}

fn check_level(level: &Level, at: Location) -> Result<()> {
    let fits = level.operators <= OPERATORS_MAX && level.relations <= OPERATORS_MAX && level.logical <= LOGICAL_MAX;
    if fits { Ok(()) } else { Err(too_deep().at(at.line, at.column)) }
}

/// The statement nests too deeply.
pub(super) fn too_deep() -> SqlError {
    SqlError::new(SqlState("54001"), "stack depth limit exceeded")
        .with_hint("The statement nests expressions or queries too deeply, or has too many operators in a row.")
}

/// Makes a shallow tree of a chain of ANDs, or of ORs.
pub(super) fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr else { return };
    let op = op.clone();
    // The parser leans chains to the left. Short ones stay as they were written.
    let is_chain = |e: &Expr| matches!(e, Expr::BinaryOp { op: inner, .. } if *inner == op);
    let Expr::BinaryOp { left: second, .. } = left.as_ref() else { return };
    if !is_chain(left) || !is_chain(second) {
        return;
    }
    let mut terms = Vec::new();
    let mut rest = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    while let Expr::BinaryOp { left, op: inner, right } = rest {
        if inner != op {
            rest = Expr::BinaryOp { left, op: inner, right };
            break;
        }
        terms.push(*right);
        rest = *left;
    }
    terms.push(rest);
    terms.reverse();
    *expr = tree(terms, &op);
}

fn tree(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if terms.len() <= 1 {
        return terms.pop().unwrap_or_else(|| Expr::Value(Value::Null.into()));
    }
    let right = terms.split_off(terms.len() / 2);
    Expr::BinaryOp { left: Box::new(tree(terms, op)), op: op.clone(), right: Box::new(tree(right, op)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::statement::dialect;

    fn fits(sql: &str) -> bool {
        check(&Tokenizer::new(dialect(), sql).tokenize_with_location().unwrap()).is_ok()
    }

    #[test]
    fn long_chains_are_refused_and_long_lists_are_not() {
        let chain = |term: &str, n: usize| format!("SELECT x{} FROM t", term.repeat(n));
        for term in ["+x", "::int", "[1]", " IS NULL", "||x", " AT TIME ZONE 'UTC'"] {
            assert!(fits(&chain(term, 100)), "{term}");
            assert!(!fits(&chain(term, 1000)), "{term}");
        }
        assert!(!fits(&"SELECT 1 UNION ALL ".repeat(1000)));
        assert!(fits(&format!("SELECT * FROM t WHERE {} a = 0", "a = 1 OR ".repeat(1500))));
        assert!(!fits(&format!("SELECT * FROM t WHERE {} a = 0", "a = 1 OR ".repeat(2500))));
        assert!(fits(&format!("INSERT INTO t VALUES {} (1)", "(1 + 2, -3, now()),".repeat(5000))));
        assert!(fits(&format!("SELECT {} 1", "a + b AS c,".repeat(5000))));
        assert!(fits(")))) ((("));
    }

    #[test]
    fn chains_become_trees() {
        let parse = |sql: &str| {
            let parser = datafusion::sql::sqlparser::parser::Parser::new(dialect());
            parser.try_with_sql(sql).unwrap().parse_expr().unwrap()
        };
        let mut expr = parse("a OR b OR c AND d OR e OR f");
        balance(&mut expr);
        let Expr::BinaryOp { left, right, .. } = &expr else { panic!() };
        assert_eq!((left.to_string().as_str(), right.to_string().as_str()), ("a OR b", "c AND d OR e OR f"));
        let mut short = parse("a AND b");
        balance(&mut short);
        assert_eq!(short.to_string(), "a AND b");
    }
}
