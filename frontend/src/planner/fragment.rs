//! Cuts a stream plan at its exchanges.

use weir_common::id::FragmentId;
use weir_common::plan::{Distribution, Fragment, JobPlan, Node, Output, PLAN_VERSION, Receive, StreamPlan};
use weir_common::{JobId, TableDef};

/// The fragments of a plan, senders before receivers.
///
/// ```text
/// Materialize                      fragment 1   Materialize
///   Exchange hash(a)      ──>                     Receive from 0
///     Filter                       fragment 0   Filter                 output: to 1, hash(a)
///       Scan                                      Scan
/// ```
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
    let mut cutter = Cutter { fragments: Vec::new(), parallelism };
    cutter.cut(plan, None);
    JobPlan { version: PLAN_VERSION, fragments: cutter.fragments, relation, inputs, parallelism }
}

struct Cutter {
    fragments: Vec<Fragment>,
    parallelism: usize,
}

impl Cutter {
    /// Makes a fragment of the plan, after those that it receives from. Returns its id.
    fn cut(&mut self, mut plan: StreamPlan, distribution: Option<Distribution>) -> FragmentId {
        let mut senders = Vec::new();
        let mut leaves = Vec::new();
        self.detach(&mut plan, &mut senders, &mut leaves);
        let single = self.parallelism == 1 || leaves.contains(&true);
        assert!(
            self.parallelism == 1 || leaves.iter().all(|s| *s == single),
            "a fragment's leaves are all at one actor or all at several"
        );
        let id = FragmentId(self.fragments.len() as u32);
        for sender in senders {
            let fragment: &mut Fragment = &mut self.fragments[sender];
            if let Some(output) = &mut fragment.output {
                output.to = id;
            }
        }
        // The receiver is not known yet; it sets this.
        let output = distribution.map(|distribution| Output { to: id, distribution });
        self.fragments.push(Fragment { id, plan, single, output });
        id
    }

    /// Replaces every exchange by what receives from a fragment of its own. For each leaf: whether it is at one actor.
    fn detach(&mut self, plan: &mut StreamPlan, senders: &mut Vec<usize>, leaves: &mut Vec<bool>) {
        if let Node::Exchange(exchange) = &mut plan.node {
            let placeholder = Node::Receive(Receive { from: FragmentId(0) });
            let schema = exchange.input.schema.clone();
            let input = std::mem::replace(&mut *exchange.input, StreamPlan { schema, node: placeholder });
            let distribution = exchange.distribution.clone();
            leaves.push(distribution == Distribution::Single);
            let from = self.cut(input, Some(distribution));
            senders.push(from.0 as usize);
            plan.node = Node::Receive(Receive { from });
            return;
        }
        match &plan.node {
            Node::Scan(scan) => leaves.push(scan.table.distribution.is_empty()),
            Node::Source(_) | Node::Dml(_) | Node::Values(_) => leaves.push(true),
            _ => {}
        }
        for input in plan.node.inputs_mut() {
            self.detach(input, senders, leaves);
        }
    }
}
