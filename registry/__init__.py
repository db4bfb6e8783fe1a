"""The record: sites, devices, versions, promotions, releases, rollouts, audit and blobs. No HTTP, no torch."""
