//! What is measured, by number, and where its measures go.

use std::sync::Arc;

use super::{Layout, subflow_name};
use crate::file::{FlowSpec, Scenario};
use crate::measures::{Measures, SubjectId};

/// Where measures go: those of single flows that arrive are apart, since there may be a hundred
/// thousand.
pub(super) struct Sheets {
    pub(super) measures: Measures,
    pub(super) arrivals: Measures,
}

impl Sheets {
    /// The measures of a flow and of its subflows.
    pub(super) fn of_flow(&mut self, flow: &FlowSpec) -> &mut Measures {
        if flow.is_arrival() { &mut self.arrivals } else { &mut self.measures }
    }
}

/// The numbers of the names of everything that is measured.
pub(super) struct Subjects {
    pub(super) flows: Vec<SubjectId>,
    /// Of flows with several.
    pub(super) subflows: Vec<SubjectId>,
    pub(super) groups: Vec<SubjectId>,
    pub(super) all: SubjectId,
    /// The classes of sizes of each group, and last those of all flows.
    pub(super) classes: Vec<Vec<SubjectId>>,
    /// By link: up and down.
    pub(super) links: Vec<[SubjectId; 2]>,
}

impl Subjects {
    pub(super) fn note(scenario: &Scenario, layout: &Layout, sheets: &mut Sheets) -> Subjects {
        let flows = &scenario.flows;
        let of_flows = flows
            .iter()
            .map(|flow| sheets.of_flow(flow).subject(Arc::clone(&flow.name), None))
            .collect();
        let of_subflows = layout
            .subflows
            .iter()
            .map(|(flow, number)| {
                let flow = &flows[*flow];
                sheets.of_flow(flow).subject(subflow_name(&flow.name, *number), None)
            })
            .collect();
        let measures = &mut sheets.measures;
        Subjects {
            flows: of_flows,
            subflows: of_subflows,
            groups: layout
                .groups
                .names
                .iter()
                .map(|group| measures.subject(Arc::clone(group), None))
                .collect(),
            all: measures.subject("".into(), None),
            classes: layout
                .groups
                .names
                .iter()
                .cloned()
                .chain(["".into()])
                .map(|of| {
                    let classes = scenario.size_classes.names().iter();
                    classes
                        .map(|class| measures.subject(Arc::clone(&of), Some(Arc::clone(class))))
                        .collect()
                })
                .collect(),
            links: scenario
                .links
                .iter()
                .map(|link| link.directions.clone().map(|of| measures.subject(of, None)))
                .collect(),
        }
    }
}
