// Package alerts tests the alerts in config/prometheus.
package alerts
