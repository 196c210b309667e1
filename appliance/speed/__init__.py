"""Speed and quality of the models: probes, judgement of their figures, quality checks, benches; pure."""
