//! Distributions of times.

use fastrand::Rng;
use serde::Deserialize;

/// The longest valid time. A longer time is a mistake.
pub const LONGEST_NS: f64 = 1e15;

/// A distribution of times in nanoseconds; see `scenario.py`.
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
    /// The median, and the standard deviation of the logarithm.
    Lognormal(f64, f64),
    /// Evenly spaced quantiles, from the least to the greatest.
    Quantiles(Vec<f64>),
}

impl Distribution {
    /// Returns a sample of at most `LONGEST_NS`, however long the tail, because times are added.
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

    /// Returns whether a script that repeats this time makes progress. The mean must be a
    /// nanosecond or more. The mean of a lognormal time can consist of values that never occur, so
    /// such a time must reach a nanosecond in at least one of forty samples.
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

    /// Checks whether the distribution is valid. The error states the reason.
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

/// Returns a normally distributed sample, one of the pair of the Box-Muller transform.
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (core::f64::consts::TAU * random.f64()).cos()
}
