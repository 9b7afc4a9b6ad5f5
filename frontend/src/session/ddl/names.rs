//! Resolves the names of a query that is kept, so that it means the same in any session.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, ObjectName, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::session::Moment;
use crate::session::build::ident;
use crate::statement::Name;

/// The query with the schema of every relation written out.
pub(super) fn qualified(moment: &Moment<'_>, query: &ast::Query) -> ast::Query {
    let mut query = query.clone();
    let ctes = common_tables(&query);
    let _ = VisitMut::visit(&mut query, &mut Qualify { moment, ctes });
    query
}

/// The names that a query itself gives to its parts.
pub(in crate::session) fn common_tables(query: &ast::Query) -> HashSet<String> {
    #[derive(Default)]
    struct CommonTables(HashSet<String>);

    impl Visitor for CommonTables {
        type Break = ();

        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
            self.0.extend(ctes.map(|cte| crate::statement::Ident::from(&cte.alias.name).value));
            ControlFlow::Continue(())
        }
    }

    let mut found = CommonTables::default();
    let _ = Visit::visit(query, &mut found);
    found.0
}

struct Qualify<'a> {
    moment: &'a Moment<'a>,
    ctes: HashSet<String>,
}

impl Qualify<'_> {
    fn resolved(&self, name: &ObjectName) -> Option<ObjectName> {
        let parsed = Name::from_ast(name).ok()?;
        if parsed.schema.is_none() && self.ctes.contains(&parsed.name.value) {
            return None;
        }
        let object = self.moment.find(&parsed).ok()??;
        Some(ObjectName::from(vec![ident(&object.schema), ident(&object.name)]))
    }
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        // With arguments it is a function.
        match factor {
            TableFactor::Table { name, args: None, .. } => {
                if let Some(resolved) = self.resolved(name) {
                    *name = resolved;
                }
            }
            TableFactor::Table { name, args: Some(args), .. } => {
                if let Some(expr) = windowed(name, &mut args.args)
                    && let Some(resolved) = relation(expr).and_then(|name| self.resolved(&name))
                {
                    let idents = resolved.0.into_iter().filter_map(|part| part.as_ident().cloned());
                    *expr = Expr::CompoundIdentifier(idents.collect());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The first argument of TUMBLE or HOP, which is a relation.
pub(super) fn windowed<'a>(function: &ObjectName, args: &'a mut [FunctionArg]) -> Option<&'a mut Expr> {
    let function = function.to_string().to_lowercase();
    match args.first_mut() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) if function == "tumble" || function == "hop" => {
            Some(expr)
        }
        _ => None,
    }
}

/// The name that such an argument is.
pub(super) fn relation(expr: &Expr) -> Option<ObjectName> {
    match expr {
        Expr::Identifier(ident) => Some(ObjectName::from(vec![ident.clone()])),
        Expr::CompoundIdentifier(idents) => Some(ObjectName::from(idents.clone())),
        _ => None,
    }
}
