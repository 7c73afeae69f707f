"""Tasks as jobs of Slurm: arrays submitted through submitit, completions through files that the jobs leave."""
