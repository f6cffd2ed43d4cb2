//! A training step on one thread allocates nothing.

use nap_engine::config::{Precision, RunConfig, TaskName};
use nap_engine::model::family::FAMILIES;
use nap_engine::train::Trainer;

/// Allocations of one step after two to warm up.
fn of_a_step(config: &RunConfig) -> u64 {
    let mut trainer = Trainer::new(config.clone()).expect("a valid configuration");
    trainer.step();
    trainer.step();
    allocation_counter::measure(|| {
        trainer.step();
    })
    .count_total
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(counted.count_total, 1);
}

#[test]
fn a_training_step_allocates_nothing() {
    for family in FAMILIES {
        for (task, precision, dropout) in [
            (TaskName::Cases, Precision::F32, 0.0),
            (TaskName::Mode, Precision::Bf16, 0.0),
            (TaskName::Mode, Precision::Bf16x3, 0.0),
            (TaskName::Lg, Precision::F32, 0.1),
        ] {
            let mut config = RunConfig::paper();
            family.apply(&mut config);
            (config.task.name, config.train.precision) = (task, precision);
            (config.model.dim, config.model.dropout) = (16, dropout);
            (config.task.length, config.train.batch, config.train.clip) = (20, 70, true);
            if family.aggregator == "weighted" {
                config.task.validation_length = nap_engine::config::Auto::Value(20);
            }
            assert_eq!(of_a_step(&config), 0, "{} {task:?} {precision:?}", family.name);
        }
    }
}
