//! Cuts a stream plan at its exchanges.

use std::collections::HashMap;

use weir_common::id::FragmentId;
use weir_common::plan::{Distribution, Fragment, JobPlan, Node, Output, PLAN_VERSION, Receive, StreamPlan};
use weir_common::{JobId, TableDef};

use super::share::{fingerprint, share};

/// The fragments of a plan, senders before receivers. What is there several times is one fragment, which sends to several.
///
/// ```text
/// Materialize                      fragment 1   Materialize
///   Exchange hash(a)      ──>                     Receive from 0
///     Filter                       fragment 0   Filter                 output: to 1, hash(a)
///       Scan                                      Scan
/// ```
///
/// The plan is the same for every parallelism, so that a job can be given another one: its state is spread by vnode, and
/// actors only share out the vnodes.
pub(super) fn fragment(plan: StreamPlan, relation: Option<TableDef>, parallelism: usize) -> JobPlan {
    let mut inputs: Vec<JobId> = Vec::new();
    plan.visit(&mut |plan| {
        if let Node::Scan(scan) = &plan.node
            && !inputs.contains(&scan.job)
        {
            inputs.push(scan.job);
        }
    });
    inputs.sort_unstable();
    let mut cutter = Cutter::default();
    cutter.cut(share(plan));
    JobPlan { version: PLAN_VERSION, fragments: cutter.fragments, relation, inputs, parallelism }
}

#[derive(Default)]
struct Cutter {
    fragments: Vec<Fragment>,
    /// The fragment of each plan that was cut, by what tells plans apart.
    known: HashMap<(String, Vec<Distribution>), FragmentId>,
}

impl Cutter {
    /// Makes a fragment of the plan, after those that it receives from; or finds the one that computes the same.
    fn cut(&mut self, mut plan: StreamPlan) -> FragmentId {
        let mut received = Vec::new();
        let mut leaves = Vec::new();
        self.detach(&mut plan, &mut received, &mut leaves);
        let known = (fingerprint(&plan), received.clone());
        if let Some(id) = self.known.get(&known) {
            return *id;
        }
        let single = leaves.contains(&true);
        assert!(leaves.iter().all(|s| *s == single), "a fragment's leaves are all at one actor or all at several");
        let id = FragmentId(self.fragments.len() as u32);
        self.connect(&mut plan, id, &mut received.into_iter());
        self.fragments.push(Fragment { id, plan, single, outputs: Vec::new() });
        self.known.insert(known, id);
        id
    }

    /// Replaces every exchange by what receives from a fragment of its own, and notes how that sends. For each leaf: whether
    /// it is at one actor.
    fn detach(&mut self, plan: &mut StreamPlan, received: &mut Vec<Distribution>, leaves: &mut Vec<bool>) {
        if let Node::Exchange(exchange) = &mut plan.node {
            let placeholder = Node::Receive(Receive { from: FragmentId(0), output: 0 });
            let schema = exchange.input.schema.clone();
            let input = std::mem::replace(&mut *exchange.input, StreamPlan { schema, node: placeholder });
            let distribution = exchange.distribution.clone();
            leaves.push(distribution == Distribution::Single);
            received.push(distribution);
            plan.node = Node::Receive(Receive { from: self.cut(input), output: 0 });
            return;
        }
        match &plan.node {
            Node::Scan(scan) => leaves.push(scan.table.distribution.is_empty()),
            Node::Source(_) | Node::Dml(_) | Node::Values(_) => leaves.push(true),
            _ => {}
        }
        for input in plan.node.inputs_mut() {
            self.detach(input, received, leaves);
        }
    }

    /// Gives each place that receives an output of its own at its sender.
    fn connect(&mut self, plan: &mut StreamPlan, to: FragmentId, received: &mut impl Iterator<Item = Distribution>) {
        if let Node::Receive(receive) = &mut plan.node
            && let Some(distribution) = received.next()
        {
            let outputs = &mut self.fragments[receive.from.0 as usize].outputs;
            receive.output = outputs.len();
            outputs.push(Output { to, distribution });
        }
        for input in plan.node.inputs_mut() {
            self.connect(input, to, received);
        }
    }
}
