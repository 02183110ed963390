//! Times that vary, and where their variety comes from.

use fastrand::Rng;
use serde::Deserialize;

/// A longer time is a mistake.
pub const LONGEST_NS: f64 = 1e15;

/// Of nanoseconds; see `scenario.py`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Distribution {
    Always(f64),
    Varying(Varying),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Varying {
    Exponential(f64),
    Uniform(f64, f64),
    /// Median, and the standard deviation of the logarithm.
    Lognormal(f64, f64),
    /// Evenly spaced, from the least to the greatest.
    Quantiles(Vec<f64>),
}

impl Distribution {
    /// However far a tail goes, no more than `LONGEST_NS`: times are added up.
    pub fn sample_ns(&self, random: &mut Rng) -> u64 {
        let ns = match self {
            Self::Always(ns) => *ns,
            Self::Varying(Varying::Exponential(mean)) => -mean * (1.0 - random.f64()).ln(),
            Self::Varying(Varying::Uniform(least, most)) => least + (most - least) * random.f64(),
            Self::Varying(Varying::Lognormal(median, sigma)) => {
                median * (sigma * normal(random)).exp()
            }
            Self::Varying(Varying::Quantiles(values)) => {
                let place = random.f64() * (values.len() - 1) as f64;
                let (below, rest) = (place as usize, place.fract());
                let above = (below + 1).min(values.len() - 1);
                values[below] + (values[above] - values[below]) * rest
            }
        };
        ns.min(LONGEST_NS) as u64
    }

    /// Whether a script that repeats it gets on: on average it is a nanosecond or more, and a lognormal time,
    /// whose mean may be made by what never happens, is that in every fortieth case at least.
    pub fn takes_time(&self) -> bool {
        let ns = match self {
            Self::Always(ns) | Self::Varying(Varying::Exponential(ns)) => *ns,
            Self::Varying(Varying::Uniform(least, most)) => (least + most) / 2.0,
            Self::Varying(Varying::Lognormal(median, sigma)) => {
                median * (sigma * (sigma / 2.0).min(1.96)).exp()
            }
            Self::Varying(Varying::Quantiles(values)) => {
                let ends = (values[0] + values[values.len() - 1]) / 2.0;
                match values.len() {
                    1 => ends,
                    count => {
                        let inner: f64 = values[1..count - 1].iter().sum();
                        (inner + ends) / (count - 1) as f64
                    }
                }
            }
        };
        ns >= 1.0
    }

    /// Why it cannot be.
    pub fn check(&self) -> Result<(), String> {
        let numbers: &[f64] = match self {
            Self::Always(ns) | Self::Varying(Varying::Exponential(ns)) => &[*ns],
            Self::Varying(Varying::Uniform(least, most) | Varying::Lognormal(least, most)) => {
                &[*least, *most]
            }
            Self::Varying(Varying::Quantiles(values)) => values,
        };
        if numbers.is_empty() {
            return Err("no quantiles".into());
        }
        match numbers.iter().find(|number| !(0.0..=LONGEST_NS).contains(*number)) {
            Some(number) => Err(format!("found {number}; a time is from 0 to 1e15 ns")),
            None => Ok(()),
        }
    }
}

/// Box and Muller's, of which one is used.
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (core::f64::consts::TAU * random.f64()).cos()
}
