# Made of template.yaml by publish.py; change that.

output "url" {
  description = "Where turns begin."
  value       = lookup(aws_cloudformation_stack.this.outputs, "Url", null)
}

output "api_endpoint" {
  description = "The address that AWS gives to the API."
  value       = lookup(aws_cloudformation_stack.this.outputs, "ApiEndpoint", null)
}

output "domain_target" {
  description = "What the name of your own has to lead to, as a CNAME or an alias."
  value       = lookup(aws_cloudformation_stack.this.outputs, "DomainTarget", null)
}

output "stream_url" {
  description = "Where streams of events come from as they happen."
  value       = lookup(aws_cloudformation_stack.this.outputs, "StreamUrl", null)
}

output "socket_url" {
  description = "Where sockets are opened; the path of a stream is added as the parameter `path`."
  value       = lookup(aws_cloudformation_stack.this.outputs, "SocketUrl", null)
}

output "bus_name" {
  description = "Where events are published, and where those that graphs wait for have to arrive."
  value       = lookup(aws_cloudformation_stack.this.outputs, "BusName", null)
}

output "table_name" {
  description = "Where everything sleeps."
  value       = lookup(aws_cloudformation_stack.this.outputs, "TableName", null)
}

output "workspace_bucket" {
  description = "Where `dormouse workspace publish` puts bundles."
  value       = lookup(aws_cloudformation_stack.this.outputs, "WorkspaceBucket", null)
}

output "failed_queue_url" {
  description = "Events that a function took and failed on."
  value       = lookup(aws_cloudformation_stack.this.outputs, "FailedQueueUrl", null)
}

output "undelivered_queue_url" {
  description = "Events and wake-ups that never reached a function."
  value       = lookup(aws_cloudformation_stack.this.outputs, "UndeliveredQueueUrl", null)
}
