//! `_native.simulate`: threads and their GILs in virtual time. Scenarios and outcomes are JSON; see
//! `headway_lab.simulated.scenario`.

use headway_python::attached::Attached;
use headway_python::convert::arguments;
use headway_python::exception::{Exception, check_signals};
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use headway_simulation::{Scenario, Simulation};

/// The number of events between two checks for signals, about a tenth of a second.
const EVENTS_BETWEEN_SIGNALS: u64 = 200_000;

pub static FUNCTIONS: Methods<2> = Methods::new([
    function(
        c"simulate",
        simulate,
        c"simulate(scenario: str) -> str\n\
          \n\
          Simulates a scenario and returns the outcome; both are JSON. Raises ValueError for an\n\
          impossible scenario, with the place and the reason. The GIL is released meanwhile, and\n\
          signals are handled from time to time.",
    ),
    END,
]);

fn simulate<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (scenario,): (&str,) = arguments(py, "simulate", given)?;
    let refuse = |reason: String| Exception::ValueError.raise(py, &reason);
    let mut simulation = simulation(scenario).map_err(refuse)?;
    while !py.detach(|| simulation.run_events(EVENTS_BETWEEN_SIGNALS)) {
        check_signals(py)?;
    }
    let outcome = py.detach(|| serde_json::to_string(&simulation.outcome()));
    Object::from_text(py, &outcome.map_err(|error| refuse(error.to_string()))?)
}

fn simulation(scenario: &str) -> Result<Simulation, String> {
    let scenario: Scenario = serde_json::from_str(scenario).map_err(|error| error.to_string())?;
    Simulation::new(scenario)
}
