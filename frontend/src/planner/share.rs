//! Equal parts of a plan are computed once.
//!
//! A query that names a CTE twice, or joins an aggregate with an aggregate of itself, has the same sub-plan in several
//! places. The fragmenter makes one fragment of equal inputs of exchanges; here, equal sub-plans get an exchange where they
//! have none, so that they become such inputs. It moves no row to another actor.
//!
//! ```text
//! Join                          Join
//!   Aggregate                     Exchange
//!     Scan t           ──>          Aggregate  ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┐
//!   Aggregate                         Scan t                       │ the same fragment
//!     Aggregate                   Aggregate                        │
//!       Scan t                      Exchange                       │
//!                                     Aggregate  ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘
//!                                       Scan t
//! ```
//!
//! Equal means equal but for the ids of state tables. All expressions of a stream plan are deterministic, so that equal
//! plans have equal results.

use std::collections::HashMap;

use weir_common::plan::{Distribution, Exchange, Node, Receive, StreamPlan};
use weir_common::{FragmentId, TableId};

use super::job::for_each_table;
use super::properties;

/// Puts exchanges over sub-plans that are there several times.
pub(super) fn share(mut plan: StreamPlan) -> StreamPlan {
    let mut classes = HashMap::new();
    let shape = classify(&mut plan, &mut classes);
    let mut shared = Shared { uses: vec![0; classes.len()] };
    shared.count(&plan, &shape, false);
    shared.expose(&mut plan, &shape, false);
    plan
}

/// A text that is the same for equal plans and no others.
pub(super) fn fingerprint(plan: &StreamPlan) -> String {
    let mut plan = plan.clone();
    for_each_table(&mut plan, &mut |table| table.id = TableId(0));
    serde_json::to_string(&plan).expect("a plan is persisted as JSON")
}

/// The class of equal plans that a plan is of, and those of its inputs.
struct Shape {
    class: usize,
    inputs: Vec<Shape>,
}

/// Leaves the plan as it is; for the moment of looking at a node its inputs are taken out.
fn classify(plan: &mut StreamPlan, classes: &mut HashMap<String, usize>) -> Shape {
    let inputs: Vec<Shape> = plan.node.inputs_mut().into_iter().map(|input| classify(input, classes)).collect();
    let mut taken = Vec::new();
    for (input, shape) in plan.node.inputs_mut().into_iter().zip(&inputs) {
        let node = Node::Receive(Receive { from: FragmentId(shape.class as u32), output: 0 });
        let stand_in = StreamPlan { schema: input.schema.clone(), node };
        taken.push(std::mem::replace(input, stand_in));
    }
    let next = classes.len();
    let class = *classes.entry(fingerprint(plan)).or_insert(next);
    for (input, taken) in plan.node.inputs_mut().into_iter().zip(taken) {
        *input = taken;
    }
    Shape { class, inputs }
}

struct Shared {
    /// How many users each class has, once what can be shared is.
    uses: Vec<usize>,
}

impl Shared {
    fn count(&mut self, plan: &StreamPlan, shape: &Shape, exchanged: bool) {
        self.uses[shape.class] += 1;
        let is_exchange = matches!(plan.node, Node::Exchange(_));
        if self.uses[shape.class] > 1 && (exchanged || is_exchange || self.placement(plan).is_some()) {
            return;
        }
        for (input, shape) in plan.node.inputs().into_iter().zip(&shape.inputs) {
            self.count(input, shape, is_exchange);
        }
    }

    fn expose(&self, plan: &mut StreamPlan, shape: &Shape, exchanged: bool) {
        let is_exchange = matches!(plan.node, Node::Exchange(_));
        for (input, shape) in plan.node.inputs_mut().into_iter().zip(&shape.inputs) {
            self.expose(input, shape, is_exchange);
        }
        if exchanged || is_exchange || self.uses[shape.class] < 2 {
            return;
        }
        // What is costly below may have got an exchange by now.
        if let Some(distribution) = self.placement(plan) {
            let nothing = Node::Receive(Receive { from: FragmentId(0), output: 0 });
            let schema = plan.schema.clone();
            let input = Box::new(std::mem::replace(plan, StreamPlan { schema: schema.clone(), node: nothing }));
            *plan = StreamPlan { schema, node: Node::Exchange(Exchange { input, distribution }) };
        }
    }

    /// The distribution of an exchange that leaves the rows where they are, if the plan is worth one.
    fn placement(&self, plan: &StreamPlan) -> Option<Distribution> {
        is_costly(plan).then(|| properties::distributions(plan).into_iter().next()).flatten()
    }
}

/// Whether computing the plan twice costs more than handing its rows on through an exchange.
fn is_costly(plan: &StreamPlan) -> bool {
    match &plan.node {
        Node::Exchange(_) | Node::Receive(_) | Node::Values(_) => false,
        Node::Project(_) | Node::Filter(_) | Node::Union(_) => plan.node.inputs().into_iter().any(is_costly),
        _ => true,
    }
}
