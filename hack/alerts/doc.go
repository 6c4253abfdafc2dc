// Package alerts tests the alerts in config/prometheus, and by which values they and the dashboards in config/grafana
// select.
package alerts
